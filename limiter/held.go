package limiter

import (
	"runtime"
	"time"
)

// LeaseStats is what requests hold under leases on a counter.
type LeaseStats struct {
	// Requests is how many hold something, and Hits how much all of them do.
	Requests, Hits uint64
	// Oldest is how long the one that holds longest has, and Next how long it takes until what it holds is free, or
	// charged, by itself. Both are 0 if none holds anything.
	Oldest, Next time.Duration
}

// LeaseStats returns what is held at the time now on the counter of charge i of b, whose policy gives leases. It changes
// nothing. It may be called concurrently, with different batches.
func (t *Table) LeaseStats(now Time, b *Batch, i int) (h LeaseStats) {
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	b.table = t
	if r := b.Charges[i].Policy.Reserve; r != nil {
		b, i = b.beside(Charge{ID: b.Charges[i].ID, Policy: &r.hold}), 0
	}
	p, v := b.Charges[i].Policy, &b.view
	for b.read(now, i, v); ; b.read(now, i, v) {
		h = v.heldBy(p, now.stamp())
		if v.same() {
			return h
		}
	}
}

// heldBy returns what is held at the time now on v's counter, which has places of p.
func (v *view) heldBy(p *Policy, now int64) (h LeaseStats) {
	if v.slot == nil || v.past == 0 {
		return h
	}
	ps, first := v.places(p), int64(maxStamp)
	for i := range ps.high {
		if ps.live(i, now) {
			h.Requests++
			first = min(first, ps.expiry(i)*int64(time.Millisecond))
		}
	}
	if h.Hits = h.Requests; p.wide {
		h.Hits = ps.sum(now)
	}
	if h.Requests > 0 {
		h.Next = time.Duration(first - now)
		h.Oldest = max(0, p.Window-h.Next)
	}
	return h
}
