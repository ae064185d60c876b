package limiter

import "runtime"

// Reset makes the counter that charge i of b names equal to a new one at the time now,
// and returns what was used of it: as [Decision.Before]. An absent counter stays absent.
// For a peek, which changes nothing, decide a charge of 0 hits.
//
// It happens at one moment, before or after any charge on the counter. Three things
// that began before it go on. A window of a clock that was ahead stays the current
// one. A group that is denied, or a cancelled call, gives back what it took before the
// reset, though that is gone already, if the window is the same. Calls that a leaky
// bucket holds keep the times that they were promised, while new ones do not wait
// behind them. A bucket that was reset may be reclaimed at once, so that its slot can
// change hands sooner than time would let it; see Table.insert.
func (t *Table) Reset(now Time, b *Batch, i int) (used uint64) {
	c, v := &b.Charges[i], &b.view
	a := c.Policy.algorithm()
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	b.table = t
	for {
		b.read(now, i, v)
		if v.slot == nil {
			return 0
		}
		if _, ok := a.decide(v, now, c, 0, 0, v.state, &b.spare); !ok { // a peek, for Before
			continue
		}
		after := a.empty(now, c.Policy, v.state)
		if after == v.state && v.same() || after != v.state && v.replace(c.Policy, after) {
			return b.spare.Before
		}
	}
}
