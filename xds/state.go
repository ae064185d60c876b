package xds

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
)

// state is the result of all responses so far, over all streams. Its methods may be called
// concurrently.
type state struct {
	mu sync.Mutex
	// opt has the latest defaults. latest is the latest response.
	opt    descriptors.Options
	latest *response
	// version is that of the rules in force, "" before the first.
	version string
	// reload keeps a response that a server sends again, on a new stream or after a
	// NACK, from being loaded again.
	reload source.Reload[reading]
	// accepted: see signalLocked.
	accepted chan struct{}
}

// response is the resources of a response.
type response struct {
	version   string
	resources []*anypb.Any
}

// reading is what rules are made of.
type reading struct {
	resources [sha256.Size]byte
	defaults  *rules.Defaults
}

// take puts the resources of a response in force, or returns every reason why not.
func (s *state) take(version string, resources []*anypb.Any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = &response{version, resources}
	return s.buildLocked()
}

// setDefaults compiles the latest response with d, and those to come.
func (s *state) setDefaults(d *rules.Defaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.Defaults = d
	if s.latest != nil && s.buildLocked() == nil { // OnLoad logs the error
		s.signalLocked()
	}
}

// buildLocked puts the latest response in force with the latest defaults, or
// returns every reason why not.
func (s *state) buildLocked() error {
	key := reading{digest(s.latest.resources), s.opt.Defaults}
	err := s.reload.Take(key, func() source.Update {
		var u source.Update
		u.Set, u.Diagnostics = build(s.latest.resources, s.opt)
		u.Err = u.Diagnostics.Err()
		active, version := u, s.latest.version
		u.Accepted = func() { s.accept(key, version, active) }
		return u
	})
	if err == nil {
		s.version = s.latest.version
	}
	return err
}

// accept notes that rules are active that were rejected. They have waited for a table, and came with the given version.
func (s *state) accept(key reading, version string, u source.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reload.Accept(key, u) {
		s.version = s.latest.version
		s.signalLocked()
	} else if s.reload.Verdict() != nil {
		s.version = version // the rules that have come since were rejected
	}
}

// signalLocked has the stream look whether rules of the latest response are active that were rejected.
func (s *state) signalLocked() {
	select {
	case s.accepted <- struct{}{}:
	default: // it has yet to look
	}
}

// verdict returns why the latest response is rejected, or nil.
func (s *state) verdict() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload.Verdict()
}

// inForceVersion returns the version of the rules in force.
func (s *state) inForceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// digest tells resources from others. Their order does not matter.
func digest(resources []*anypb.Any) [sha256.Size]byte {
	sorted := slices.SortedFunc(slices.Values(resources), func(a, b *anypb.Any) int {
		return cmp.Or(cmp.Compare(a.GetTypeUrl(), b.GetTypeUrl()), bytes.Compare(a.GetValue(), b.GetValue()))
	})
	var texts [][]byte
	for _, r := range sorted {
		texts = append(texts, []byte(r.GetTypeUrl()), r.GetValue())
	}
	return source.Digest(texts...)
}

// maxDetail bounds the text of a NACK well below what a gRPC server takes by
// default, 4 MiB.
const maxDetail = 1 << 20

// rejection returns the text of a NACK.
func rejection(err error) string {
	text := err.Error()
	if len(text) > maxDetail {
		whole := text[:strings.LastIndexByte(text[:maxDetail], '\n')+1]
		text = fmt.Sprintf("%sand %d more errors", whole, strings.Count(text[len(whole):], "\n")+1)
	}
	return strings.ToValidUTF8(text, "?")
}
