package limiter

import (
	"runtime"
	"time"
)

// LeaseStats describes the leases held on a counter.
type LeaseStats struct {
	// Requests is the number of leases, and Hits the number of hits that they hold.
	Requests, Hits uint64
	// Oldest is the age of the oldest lease, and Next the time until the next one expires. Both are
	// 0 without leases.
	Oldest, Next time.Duration
}

// LeaseStats returns the leases held at the time now on the counter of charge i of b, whose policy
// must grant leases. It changes nothing, and may be called concurrently with different batches.
func (t *Table) LeaseStats(now Time, b *Batch, i int) (h LeaseStats) {
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	b.table = t
	if r := b.Charges[i].Policy.Reserve; r != nil {
		b = b.companionBatch(Charge{ID: b.Charges[i].ID, Policy: &r.hold})
		i = 0
	}
	p := b.Charges[i].Policy
	v := &b.view
	for b.read(now, i, v); ; b.read(now, i, v) {
		h = v.leaseStats(p, now.stamp())
		if v.unchanged() {
			return h
		}
	}
}

// leaseStats returns the leases held on v's counter at the time now.
func (v *view) leaseStats(p *Policy, now int64) (h LeaseStats) {
	if v.slot == nil || v.past == 0 {
		return h
	}
	ps := v.permits(p)
	first := int64(maxStamp)
	for i := range ps.high {
		if ps.isHeld(i, now) && !ps.isVoid(i, now) {
			h.Requests++
			first = min(first, ps.expiry(i)*int64(time.Millisecond))
		}
	}
	h.Hits = h.Requests
	if p.weighted {
		h.Hits = ps.heldHits(now)
	}
	if h.Requests > 0 {
		h.Next = time.Duration(first - now)
		h.Oldest = max(0, p.Window-h.Next)
	}
	return h
}
