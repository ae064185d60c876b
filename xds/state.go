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

// state is the result of all responses so far, of all streams. Its methods may be called
// concurrently.
type state struct {
	mu sync.Mutex
	// opt has the latest defaults, and latest is the latest response.
	opt    descriptors.Options
	latest *response
	// version is that of the active rules, "" before the first response.
	version string
	// reload skips a response that equals the last one, which servers repeat on a new stream or
	// after a NACK.
	reload source.Reload[reading]
	// accepted signals that the rules of a rejected response may be active now; see signalLocked.
	accepted chan struct{}
}

// response is the resources of a response.
type response struct {
	version   string
	resources []*anypb.Any
}

// reading identifies the input of rules.
type reading struct {
	resources [sha256.Size]byte
	defaults  *rules.Defaults
}

// apply activates the resources of a response, or returns all reasons why not.
func (s *state) apply(version string, resources []*anypb.Any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = &response{version, resources}
	return s.buildLocked()
}

// setDefaults sets the defaults of the latest response and of later ones.
func (s *state) setDefaults(d *rules.Defaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.Defaults = d
	if s.latest != nil && s.buildLocked() == nil { // OnLoad logs the error
		s.signalLocked()
	}
}

// buildLocked activates the latest response with the latest defaults, or returns all reasons why
// not.
func (s *state) buildLocked() error {
	key := reading{digest(s.latest.resources), s.opt.Defaults}
	err := s.reload.Apply(key, func() source.Update {
		var u source.Update
		u.Set, u.Diagnostics = build(s.latest.resources, s.opt)
		u.Err = u.Diagnostics.Err()
		active := u
		version := s.latest.version
		u.Accepted = func() { s.accept(key, version, active) }
		return u
	})
	if err == nil {
		s.version = s.latest.version
	}
	return err
}

// accept records that rejected rules are active now, after a table that they needed was loaded.
// version is the version of their response.
func (s *state) accept(key reading, version string, u source.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reload.Accept(key, u) {
		s.version = s.latest.version
		s.signalLocked()
	} else if s.reload.LastError() != nil {
		s.version = version // later responses were rejected
	}
}

// signalLocked makes the stream check whether the latest response, which was rejected, is active
// now.
func (s *state) signalLocked() {
	select {
	case s.accepted <- struct{}{}:
	default: // the signal is already pending
	}
}

// lastError returns why the latest response is rejected, or nil.
func (s *state) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload.LastError()
}

// activeVersion returns the version of the active rules.
func (s *state) activeVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// digest returns a hash of resources, which does not depend on their order.
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

// maxDetail bounds the text of a NACK well below the default limit of gRPC servers, 4 MiB.
const maxDetail = 1 << 20

// rejection returns the text of a NACK.
func rejection(err error) string {
	text := err.Error()
	if len(text) > maxDetail {
		lines := text[:strings.LastIndexByte(text[:maxDetail], '\n')+1]
		text = fmt.Sprintf("%sand %d more errors", lines, strings.Count(text[len(lines):], "\n")+1)
	}
	return strings.ToValidUTF8(text, "?")
}
