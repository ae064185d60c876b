package limiter

import "slices"

// Conclude decides all charges of b as [Table.Decide] does, but on counters that a store has
// charged: found, parallel to b.Charges, is what they found there, and now is when the store
// decided. Of several charges on one counter the first in b tells the state before all
// of them, and the others only their Stamp. The store must have charged as Decide does
// for a caller who is alone, and set refunds off before; see [Batch.SetOff].
//
// It refers to found's Counts until b is reset or decided again, and allocates nothing once b
// has grown.
func (b *Batch) Conclude(now Time, found []State) {
	b.keep(found)
	(*Table)(nil).Decide(now, b)
}

// A kept is a counter that a store told of, while the charges of a batch are decided.
type kept struct {
	told  State // what the store told: of the charge its Stamp, of the first on the counter all else
	first int   // the first charge on the counter, whose kept says what follows

	changed bool // a charge has made it state
	state   state
	newest  Time // of a log of which a refund took the newest hits: the newest that stays; else 0
}

// keep fills b.kept.
func (b *Batch) keep(found []State) {
	n := len(b.Charges)
	b.kept = slices.Grow(b.kept[:0], n)[:n]
	if n == 1 {
		b.kept[0] = kept{told: found[0]}
		return
	}
	b.sortMembers(0, n)
	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = b.runEnd(lo)
		first := b.members[lo].index
		for m := lo; m < hi; m++ {
			i := b.members[m].index
			b.kept[i] = kept{told: found[first], first: first}
			b.kept[i].told.Stamp = found[i].Stamp
		}
	}
}

// recall is [Table.read] for a counter that a store told of.
func (b *Batch) recall(at Time, i int, v *view) {
	k := &b.kept[b.kept[i].first]
	*v = view{class: &outside, found: &b.kept[i].told}
	p := b.Charges[i].Policy
	p.algorithm().found(v, at, p)
	if k.changed {
		v.state = k.state
	}
	if k.newest != 0 {
		v.found.Time = k.newest
	}
}

// outside is the size class of counters that have no slot, because a store has them. It tells
// their views from others.
var outside sizeClass

// remember is [Table.write] for a counter that a store told of.
func (b *Batch) remember(i int, v *view, after state) {
	k := &b.kept[b.kept[i].first]
	k.state, k.changed = after, true
	if after.past < v.past && after.used == 0 { // the newest hits of a log went
		k.newest = v.found.Stamp
	}
}
