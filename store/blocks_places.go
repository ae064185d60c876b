package store

import (
	"slices"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// hotSetSize is the number of places in a hotSet. They are in one cache line.
const hotSetSize = 2

// A hotSet is the places for hot counters whose identities have the same low bits. Places change
// under blocks.mu only, so a counter never has two.
type hotSet [hotSetSize]atomic.Pointer[hotCounter]

// setOf returns the set of a charge's counter.
func (bl *blocks) setOf(c *limiter.Charge) *hotSet { return &bl.hot[c.ID.Lo%uint64(len(bl.hot))] }

// find returns the hot counter of a charge, or nil.
func (bl *blocks) find(c *limiter.Charge) *hotCounter {
	set := bl.setOf(c)
	for i := range set {
		if h := set[i].Load(); h != nil && h.charge.ID == c.ID {
			return h
		}
	}
	return nil
}

// free returns a free place, or nil.
func (s *hotSet) free() *atomic.Pointer[hotCounter] {
	for i := range s {
		if s[i].Load() == nil {
			return &s[i]
		}
	}
	return nil
}

// insert puts h into a free place. It reports false if there is none, or if the counter is already
// hot.
func (bl *blocks) insert(h *hotCounter) bool {
	bl.mu.Lock()
	defer bl.mu.Unlock()
	place := bl.setOf(&h.charge).free()
	if place == nil || bl.find(&h.charge) != nil {
		return false
	}
	place.Store(h)
	bl.all = append(bl.all, h)
	return true
}

// removeRetired removes the counters that sweep has retired.
func (bl *blocks) removeRetired() {
	bl.mu.Lock()
	defer bl.mu.Unlock()
	for _, h := range bl.all {
		if set := bl.setOf(&h.charge); h.retired {
			for i := range set {
				set[i].CompareAndSwap(h, nil)
			}
		}
	}
	bl.all = slices.DeleteFunc(bl.all, func(h *hotCounter) bool { return h.retired })
}
