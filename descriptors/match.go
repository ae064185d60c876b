package descriptors

import (
	"github.com/sluice-ratelimit/sluice/limiter"
)

// domain is one domain's compiled rules.
type domain struct {
	name string
	// index is the domain's place in Set.names.
	index        int
	allOrNothing bool
	// maxCounters is 0 where the domain has no bound of its own.
	maxCounters int64
	root        node
	// prefix is the hash of the name, with which each identity begins.
	prefix limiter.Hasher
	// replaceable counts the names that some limit bears and some limit replaces.
	// Their ids are 1..replaceable.
	replaceable int
}

// match returns the node that the entries lead to, or nil. Without entries it is
// the root, which has no rule.
func (d *domain) match(entries []Entry) *node {
	n := &d.root
	for i := range entries {
		if n.below == nil {
			return nil
		}
		if n = n.below.next(&entries[i]); n == nil {
			return nil
		}
	}
	return n
}

// identify hashes what the identities of all counters of a descriptor have in
// common. Where shared has an element that is not nil, it stands in place of the
// entry's value.
func (d *domain) identify(entries []Entry, shared [][]byte) limiter.Hasher {
	h := d.prefix
	for i := range entries {
		e := &entries[i]
		if shared != nil && shared[i] != nil {
			h.Pair(e.Key, shared[i])
		} else {
			h.Pair(e.Key, e.Value)
		}
	}
	return h
}

// counterWord is the part of an identity that says what a counter holds. Every
// identity ends with one such word, so that it cannot be taken for the lengths of
// another entry.
func counterWord(p *limiter.Policy) uint64 {
	const nanosPerSecond = 1_000_000_000
	word := uint64(p.Algorithm)<<32 | uint64(p.Window/nanosPerSecond) //nolint:gosec // a window is positive
	if p.Algorithm == limiter.SlidingWindow {
		word |= uint64(p.SubWindows) << 40 // the slots of one ring are no use to another
	}
	return word
}
