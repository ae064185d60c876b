package limiter

import (
	"runtime"
	"slices"
)

// Adopt makes the counter of charge i of b what a store says it is at the time now, so that this
// table can go on from there when the store is away. Of a log it takes over nothing but what the charge,
// which [Batch.Conclude] has decided, put into it: a store does not tell the time of each hit.
//
// A fixed window never goes back to an older one. It allocates nothing.
func (t *Table) Adopt(now Time, b *Batch, i int, told *State) {
	c, v := &b.Charges[i], &b.view
	p := c.Policy
	a := p.algorithm()
	b.members = slices.Grow(b.members[:0], 1)[:1]
	there := &b.members[0].seen // which the store tells of
	*there = view{class: &outside, found: told}
	a.found(there, now, p)
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	for {
		t.read(now, b, i, v)
		after := there.state
		switch p.Algorithm {
		case SlidingLog:
			d := &b.Decisions[i]
			if c.Refund || d.Charged == 0 {
				return
			}
			after, _ = slidingLog{}.force(logLimit(p), v.state, d.Charged)
		case SlidingWindow:
			v.found = told // what store writes
		case TokenBucket, LeakyBucket:
			if k := p.bucket(); v.slot == nil && k.level(after, now) == 0 {
				return
			}
		default:
			if v.num > after.num {
				return
			}
		}
		if v.slot == nil && a.weighs() && after.used+after.past == 0 {
			return
		}
		if t.write(now, b, i, v, after) {
			return
		}
	}
}
