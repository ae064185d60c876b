package script

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A hold is a place, or a reservation, that a replica gave while it was without the store.
type heldLease struct {
	lease uint64
	hits  uint64 // 1 of a place
	end   int64  // when it is free by itself at the latest, in milliseconds since 1970
	sent  bool   // the store may have been told of it
}

// mostLeases is how many leases a counter is owed at most of either kind, and pieceOfLeases how many in one run.
const (
	maxLeases       = limiter.MaxLog
	maxLeasesPerRun = 100
)

// usesLease reports whether a charge takes something under a lease, or brings one back.
func usesLease(c *limiter.Charge) bool {
	return c.Policy.Algorithm == limiter.Concurrency || c.Policy.Reserve != nil && (c.Reserve || c.Refund)
}

// LeaseCount is how many leases d has.
func (d *Unsynced) LeaseCount() int { return len(d.acquired) + len(d.released) }

// Released reports whether d has a lease that was given back.
func (d *Unsynced) Released(lease uint64) bool {
	return slices.ContainsFunc(d.released, func(h heldLease) bool { return h.lease == lease })
}

// HitsUnder returns the hits that d holds under a lease.
func (d *Unsynced) HitsUnder(lease uint64) uint64 {
	if i := slices.IndexFunc(d.acquired, func(h heldLease) bool { return h.lease == lease }); i >= 0 {
		return d.acquired[i].hits
	}
	return 0
}

// setLease makes d what charge i of b took at the time now, or the lease that it gave back. It reports false if that
// is nothing.
func (d *Unsynced) setLease(now limiter.Time, b *limiter.Batch, i int) bool {
	c := &b.Charges[i]
	if c.Policy.Reserve != nil {
		d.Policy, d.reserved = *c.Policy.Reserve.Hold(), true
	}
	if d.Hits = 0; c.Refund {
		d.released = append(d.released, heldLease{lease: c.Hits, end: d.leaseExpiry(now)})
		return true
	}
	lease := b.Lease(i)
	d.acquired = append(d.acquired, heldLease{lease: lease, hits: b.Decisions[i].Charged, end: d.leaseExpiry(now)})
	d.recomputeHits()
	return lease > 0
}

// leaseExpiry returns when a lease of the time now is free by itself.
func (d *Unsynced) leaseExpiry(now limiter.Time) int64 {
	return int64((now + limiter.Time(d.Policy.Window) + limiter.Time(time.Millisecond) - 1) / limiter.Time(time.Millisecond))
}

// recomputeHits makes the hits of d those of its leases.
func (d *Unsynced) recomputeHits() {
	d.Hits = 0
	for _, h := range d.acquired {
		d.Hits += h.hits
	}
	d.Admitted = d.Hits
}

// addLeases adds those of other. What was taken and is given back is owed no more, unless the store may have been told of it.
// It returns the hits of those that it has no room for.
func (d *Unsynced) addLeases(other *Unsynced) (forgotten uint64) {
	for _, h := range other.acquired {
		if !d.Released(h.lease) { // else other was on its way to the store, which may hold it
			d.acquired = append(d.acquired, h)
		}
	}
	for _, back := range other.released {
		n := slices.IndexFunc(d.acquired, func(h heldLease) bool { return h.lease == back.lease })
		owed := n < 0 || d.acquired[n].sent
		if n >= 0 {
			d.acquired = slices.Delete(d.acquired, n, n+1)
		}
		if owed && !d.Released(back.lease) {
			d.released = append(d.released, back)
		}
	}
	d.dropEnded(d.at)
	for _, h := range d.acquired[:max(0, len(d.acquired)-maxLeases)] {
		forgotten += h.hits
	}
	d.acquired, d.released = newestLeases(d.acquired), newestLeases(d.released)
	d.recomputeHits()
	return forgotten
}

// isExpired returns what reports whether a hold is free by itself at the time now.
func isExpired(now limiter.Time) func(h heldLease) bool {
	return func(h heldLease) bool { return h.end <= int64(now)/int64(time.Millisecond) }
}

// newestLeases returns the mostLeases newest of all.
func newestLeases(all []heldLease) []heldLease { return all[max(0, len(all)-maxLeases):] }

// dropEnded drops what was taken and is free by itself at the time now.
func (d *Unsynced) dropEnded(now limiter.Time) {
	d.acquired = slices.DeleteFunc(d.acquired, isExpired(now))
	d.recomputeHits()
}

// DropEnded drops the leases of d that have ended by themselves, also those that were given back.
func (d *Unsynced) DropEnded(now limiter.Time) {
	d.released = slices.DeleteFunc(d.released, isExpired(now))
	d.dropEnded(now)
}

// lastLeaseExpiry returns when the last lease of d has ended by itself.
func (d *Unsynced) lastLeaseExpiry() limiter.Time {
	end := int64(0)
	for _, all := range [...][]heldLease{d.acquired, d.released} {
		for _, h := range all {
			end = max(end, h.end)
		}
	}
	return limiter.Time(end) * limiter.Time(time.Millisecond)
}

// Split returns d in as many debts as it takes runs.
func (d *Unsynced) Split() (all []*Unsynced) {
	for d.LeaseCount() > maxLeasesPerRun {
		piece := *d
		piece.acquired = d.acquired[:min(len(d.acquired), maxLeasesPerRun)]
		piece.released = d.released[:min(len(d.released), maxLeasesPerRun-len(piece.acquired))]
		d.acquired, d.released = d.acquired[len(piece.acquired):], d.released[len(piece.released):]
		piece.recomputeHits()
		d.recomputeHits()
		all = append(all, &piece)
	}
	return append(all, d)
}

// HasAcquired reports whether d is something that was taken under a lease without the store.
func (d *Unsynced) HasAcquired() bool { return len(d.acquired) > 0 }

// MarkSent notes that the store may have been told of what d has taken.
func (d *Unsynced) MarkSent() {
	for i := range d.acquired {
		d.acquired[i].sent = true
	}
}

// SetRelease makes d, which gives something back, give back the lease under which the store holds something for charge i of c,
// or, if it has not replied, may hold it. It reports whether there is one.
func (d *Unsynced) SetRelease(c *Call, i int, replied bool) bool {
	back := &d.released[0]
	if back.lease = c.charges[i].lease; replied {
		back.lease = c.Found[i].Lease
	}
	return back.lease > 0
}

// appendUnsyncedLeases appends the leases of d: for how long they hold, how many were taken and how many given back, the taken ones
// with when they end and, of reservations, their hits, and the others.
func (c *Call) appendUnsyncedLeases(d *Unsynced) {
	letter := forms[limiter.Concurrency].letter
	if d.reserved {
		letter = "h"
	}
	c.args = append(c.args, letter, "", c.number(int64(d.Policy.Window/time.Second)), c.number(int64(len(d.acquired))), c.number(int64(len(d.released))))
	for _, h := range d.acquired {
		c.args = append(c.args, c.number(int64(h.lease)), c.number(h.end)) //nolint:gosec // a lease
		if d.reserved {
			c.args = append(c.args, c.number(int64(min(h.hits, maxHits))))
		}
	}
	for _, h := range d.released {
		c.args = append(c.args, c.number(int64(h.lease))) //nolint:gosec // a lease
	}
}
