package script

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A heldLease is a permit or a reservation that a replica granted without the store, or a released
// lease.
type heldLease struct {
	lease uint64
	hits  uint64 // 1 for a permit
	end   int64  // latest expiry, in milliseconds since 1970
	sent  bool   // the store may know it
}

// maxLeases is the maximum number of acquired, and of released, leases of a counter, and
// maxLeasesPerRun that in one run.
const (
	maxLeases       = limiter.MaxLog
	maxLeasesPerRun = 100
)

// usesLease reports whether a charge acquires or returns a lease.
func usesLease(c *limiter.Charge) bool {
	return c.Policy.Algorithm == limiter.Concurrency || c.Policy.Reserve != nil && (c.Reserve || c.Refund)
}

// LeaseCount returns the number of leases of d.
func (d *Unsynced) LeaseCount() int { return len(d.acquired) + len(d.released) }

// Released reports whether d has a lease as released.
func (d *Unsynced) Released(lease uint64) bool {
	return slices.ContainsFunc(d.released, func(h heldLease) bool { return h.lease == lease })
}

// Ends reports whether other only releases leases that d has acquired, so that adding it takes no room.
func (d *Unsynced) Ends(other *Unsynced) bool {
	isForeign := func(h heldLease) bool { return d.HitsUnder(h.lease) == 0 }
	return len(other.acquired) == 0 && !slices.ContainsFunc(other.released, isForeign)
}

// HitsUnder returns the hits of d under a lease.
func (d *Unsynced) HitsUnder(lease uint64) uint64 {
	if i := slices.IndexFunc(d.acquired, func(h heldLease) bool { return h.lease == lease }); i >= 0 {
		return d.acquired[i].hits
	}
	return 0
}

// setLease sets d to the lease that charge i of b acquired at the time now, or returned. It reports
// false if there is none.
func (d *Unsynced) setLease(now limiter.Time, b *limiter.Batch, i int) bool {
	c := &b.Charges[i]
	if c.Policy.Reserve != nil {
		d.Policy = c.Policy.Reserve.HoldPolicy().Clone(nil)
		d.reserved = true
	}
	d.Hits = 0
	if c.Refund {
		d.released = append(d.released, heldLease{lease: c.Hits, end: d.leaseExpiry(now)})
		return true
	}
	lease := b.Lease(i)
	d.acquired = append(d.acquired, heldLease{lease: lease, hits: b.Decisions[i].Charged, end: d.leaseExpiry(now)})
	d.recomputeHits()
	return lease > 0
}

// leaseExpiry returns when a lease that is granted at the time now expires.
func (d *Unsynced) leaseExpiry(now limiter.Time) int64 {
	return int64((now + limiter.Time(d.Policy.Window) +
		limiter.Time(time.Millisecond) - 1) / limiter.Time(time.Millisecond))
}

// recomputeHits sets the hits of d to those of its leases.
func (d *Unsynced) recomputeHits() {
	d.Hits = 0
	for _, h := range d.acquired {
		d.Hits += h.hits
	}
	d.Admitted = d.Hits
}

// addLeases adds the leases of other. A released lease cancels its acquisition, unless the store
// may know that. addLeases returns the hits of the leases for which there is no room.
func (d *Unsynced) addLeases(other *Unsynced) (dropped uint64) {
	for _, h := range other.acquired {
		if !d.Released(h.lease) { // otherwise other was in flight, and the store may know it
			d.acquired = append(d.acquired, h)
		}
	}
	for _, back := range other.released {
		n := slices.IndexFunc(d.acquired, func(h heldLease) bool { return h.lease == back.lease })
		release := n < 0 || d.acquired[n].sent
		if n >= 0 {
			d.acquired = slices.Delete(d.acquired, n, n+1)
		}
		if release && !d.Released(back.lease) {
			d.released = append(d.released, back)
		}
	}
	d.dropEnded(d.at)
	for _, h := range d.acquired[:max(0, len(d.acquired)-maxLeases)] {
		dropped += h.hits
	}
	d.acquired = newestLeases(d.acquired)
	d.released = newestLeases(d.released)
	d.recomputeHits()
	return dropped
}

// isExpired returns a function that reports whether a lease has expired at the time now.
func isExpired(now limiter.Time) func(h heldLease) bool {
	return func(h heldLease) bool { return h.end <= int64(now)/int64(time.Millisecond) }
}

// newestLeases returns the maxLeases newest of all.
func newestLeases(all []heldLease) []heldLease { return all[max(0, len(all)-maxLeases):] }

// dropEnded drops acquired leases that have expired at the time now.
func (d *Unsynced) dropEnded(now limiter.Time) {
	d.acquired = slices.DeleteFunc(d.acquired, isExpired(now))
	d.recomputeHits()
}

// DropEnded drops all leases that have expired, also released ones.
func (d *Unsynced) DropEnded(now limiter.Time) {
	d.released = slices.DeleteFunc(d.released, isExpired(now))
	d.dropEnded(now)
}

// lastLeaseExpiry returns when the last lease of d has expired.
func (d *Unsynced) lastLeaseExpiry() limiter.Time {
	end := int64(0)
	for _, all := range [...][]heldLease{d.acquired, d.released} {
		for _, h := range all {
			end = max(end, h.end)
		}
	}
	return limiter.Time(end) * limiter.Time(time.Millisecond)
}

// Split divides d into pieces of at most maxLeasesPerRun leases.
func (d *Unsynced) Split() (all []*Unsynced) {
	for d.LeaseCount() > maxLeasesPerRun {
		piece := *d
		piece.acquired = d.acquired[:min(len(d.acquired), maxLeasesPerRun)]
		piece.released = d.released[:min(len(d.released), maxLeasesPerRun-len(piece.acquired))]
		d.acquired = d.acquired[len(piece.acquired):]
		d.released = d.released[len(piece.released):]
		piece.recomputeHits()
		d.recomputeHits()
		all = append(all, &piece)
	}
	return append(all, d)
}

// HasAcquired reports whether d has leases that were granted without the store.
func (d *Unsynced) HasAcquired() bool { return len(d.acquired) > 0 }

// MarkSent records that the store may know the acquired leases.
func (d *Unsynced) MarkSent() {
	for i := range d.acquired {
		d.acquired[i].sent = true
	}
}

// SetRelease sets the only released lease of d to the one that the store granted for charge i of c,
// or may have granted if it has not replied. It reports whether there is one.
func (d *Unsynced) SetRelease(c *Call, i int, replied bool) bool {
	back := &d.released[0]
	back.lease = c.charges[i].lease
	if replied {
		back.lease = c.Found[i].Lease
	}
	return back.lease > 0
}

// appendUnsyncedLeases appends the leases of d: their duration, the number of acquired and of
// released ones, the acquired ones with their expiry and, for reservations, their hits, and the
// released ones.
func (c *Call) appendUnsyncedLeases(d *Unsynced) {
	letter := forms[limiter.Concurrency].letter
	if d.reserved {
		letter = "h"
	}
	c.args = append(c.args, letter, "", c.number(int64(d.Policy.Window/time.Second)), c.number(int64(len(d.acquired))),
		c.number(int64(len(d.released))))
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
