package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
)

// state is what came of the responses so far, over all streams. Its methods may
// be called concurrently.
type state struct {
	onLoad func(source.Update) error

	mu sync.Mutex
	// opt has the latest defaults, latest the latest response that was looked at.
	opt    descriptors.Options
	latest *response
	// version is that of the rules in force, "" before the first.
	version string
	// inForce is the last good outcome, reported the last one of either kind: what
	// a server sends again, on a new stream or after a NACK, is not news.
	inForce, reported outcome
}

// response is the resources of a response.
type response struct {
	version   string
	resources []*anypb.Any
}

// outcome is an Update with what it was made of.
type outcome struct {
	sum      [sha256.Size]byte // of the resources
	defaults *rules.Defaults
	update   source.Update
}

// take puts the resources of a response in force, or returns every reason why not.
func (s *state) take(version string, resources []*anypb.Any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = &response{version, resources}
	return s.buildLocked()
}

// setDefaults has the latest response compiled with d, and those to come.
func (s *state) setDefaults(d *rules.Defaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.Defaults = d
	if s.latest != nil {
		_ = s.buildLocked() // onLoad has told of it
	}
}

// buildLocked puts the latest response in force with the latest defaults, or
// returns every reason why not.
func (s *state) buildLocked() error {
	o := outcome{sum: hash(s.latest.resources), defaults: s.opt.Defaults}
	switch {
	case o.same(&s.reported):
		o = s.reported
	case o.same(&s.inForce): // back from what was refused
		o = s.inForce
		o.update.Err = s.onLoad(o.update)
	default:
		o.update.Set, o.update.Diagnostics = build(s.latest.resources, s.opt)
		o.update.Err = o.update.Diagnostics.Err()
		if err := s.onLoad(o.update); o.update.Err == nil && err != nil {
			o.update.Set, o.update.Err = nil, err
		}
	}
	s.reported = o
	if o.update.Err == nil {
		s.inForce, s.version = o, s.latest.version
	}
	return o.update.Err
}

// same reports whether old is the outcome of the same resources and defaults.
func (o *outcome) same(old *outcome) bool {
	known := old.update.Set != nil || old.update.Err != nil
	return known && o.sum == old.sum && o.defaults == old.defaults
}

// inForceVersion returns the version of the rules in force.
func (s *state) inForceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// hash returns a sum of the resources, in whatever order they came.
func hash(resources []*anypb.Any) [sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(resources))
	for i, r := range resources {
		h := sha256.New()
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(r.GetTypeUrl())))) // so that parts cannot shift
		h.Write([]byte(r.GetTypeUrl()))
		h.Write(r.GetValue())
		h.Sum(sums[i][:0])
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	all := sha256.New()
	for i := range sums {
		all.Write(sums[i][:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// maxDetail bounds the text of a NACK well below what a gRPC server takes by
// default, 4 MiB.
const maxDetail = 1 << 20

// refusal is the text of a NACK.
func refusal(err error) string {
	text := err.Error()
	if len(text) > maxDetail {
		whole := text[:strings.LastIndexByte(text[:maxDetail], '\n')+1]
		text = fmt.Sprintf("%sand %d more errors", whole, strings.Count(text[len(whole):], "\n")+1)
	}
	return strings.ToValidUTF8(text, "?")
}
