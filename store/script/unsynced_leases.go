package script

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A hold is a place, or a reservation, that a replica gave while it was without the store.
type hold struct {
	lease uint64
	hits  uint64 // 1 of a place
	end   int64  // when it is free by itself at the latest, in milliseconds since 1970
	sent  bool   // the store may have been told of it
}

// mostLeases is how many leases a counter is owed at most of either kind, and pieceOfLeases how many in one run.
const (
	mostLeases    = limiter.MaxLog
	pieceOfLeases = 100
)

// ofLease reports whether a charge takes something under a lease, or brings one back.
func ofLease(c *limiter.Charge) bool {
	return c.Policy.Algorithm == limiter.Concurrency || c.Policy.Reserve != nil && (c.Reserve || c.Refund)
}

// Leases is how many leases d has.
func (d *Debt) Leases() int { return len(d.taken) + len(d.given) }

// Gave reports whether d has a lease that was given back.
func (d *Debt) Gave(lease uint64) bool {
	return slices.ContainsFunc(d.given, func(h hold) bool { return h.lease == lease })
}

// Took returns the hits that d holds under a lease.
func (d *Debt) Took(lease uint64) uint64 {
	if i := slices.IndexFunc(d.taken, func(h hold) bool { return h.lease == lease }); i >= 0 {
		return d.taken[i].hits
	}
	return 0
}

// setLease makes d what charge i of b took at the time now, or the lease that it gave back. It reports false if that
// is nothing.
func (d *Debt) setLease(now limiter.Time, b *limiter.Batch, i int) bool {
	c := &b.Charges[i]
	if c.Policy.Reserve != nil {
		d.Policy, d.reserved = *c.Policy.Reserve.Hold(), true
	}
	if d.Hits = 0; c.Refund {
		d.given = append(d.given, hold{lease: c.Hits, end: d.end(now)})
		return true
	}
	lease := b.Lease(i)
	d.taken = append(d.taken, hold{lease: lease, hits: b.Decisions[i].Charged, end: d.end(now)})
	d.sum()
	return lease > 0
}

// end returns when a lease of the time now is free by itself.
func (d *Debt) end(now limiter.Time) int64 {
	return int64((now + limiter.Time(d.Policy.Window) + limiter.Time(time.Millisecond) - 1) / limiter.Time(time.Millisecond))
}

// sum makes the hits of d those of its leases.
func (d *Debt) sum() {
	d.Hits = 0
	for _, h := range d.taken {
		d.Hits += h.hits
	}
	d.Admitted = d.Hits
}

// addLeases adds those of other. What was taken and is given back is owed no more, unless the store may have been told of it.
// It returns the hits of those that it has no room for.
func (d *Debt) addLeases(other *Debt) (forgotten uint64) {
	for _, h := range other.taken {
		if !d.Gave(h.lease) { // else other was on its way to the store, which may hold it
			d.taken = append(d.taken, h)
		}
	}
	for _, back := range other.given {
		n := slices.IndexFunc(d.taken, func(h hold) bool { return h.lease == back.lease })
		owed := n < 0 || d.taken[n].sent
		if n >= 0 {
			d.taken = slices.Delete(d.taken, n, n+1)
		}
		if owed && !d.Gave(back.lease) {
			d.given = append(d.given, back)
		}
	}
	d.dropEnded(d.at)
	for _, h := range d.taken[:max(0, len(d.taken)-mostLeases)] {
		forgotten += h.hits
	}
	d.taken, d.given = newest(d.taken), newest(d.given)
	d.sum()
	return forgotten
}

// ended returns what reports whether a hold is free by itself at the time now.
func ended(now limiter.Time) func(h hold) bool {
	return func(h hold) bool { return h.end <= int64(now)/int64(time.Millisecond) }
}

// newest returns the mostLeases newest of all.
func newest(all []hold) []hold { return all[max(0, len(all)-mostLeases):] }

// dropEnded drops what was taken and is free by itself at the time now.
func (d *Debt) dropEnded(now limiter.Time) {
	d.taken = slices.DeleteFunc(d.taken, ended(now))
	d.sum()
}

// DropEnded drops the leases of d that have ended by themselves, also those that were given back.
func (d *Debt) DropEnded(now limiter.Time) {
	d.given = slices.DeleteFunc(d.given, ended(now))
	d.dropEnded(now)
}

// leasesEnd returns when the last lease of d has ended by itself.
func (d *Debt) leasesEnd() limiter.Time {
	end := int64(0)
	for _, all := range [...][]hold{d.taken, d.given} {
		for _, h := range all {
			end = max(end, h.end)
		}
	}
	return limiter.Time(end) * limiter.Time(time.Millisecond)
}

// Pieces returns d in as many debts as it takes runs.
func (d *Debt) Pieces() (all []*Debt) {
	for d.Leases() > pieceOfLeases {
		piece := *d
		piece.taken = d.taken[:min(len(d.taken), pieceOfLeases)]
		piece.given = d.given[:min(len(d.given), pieceOfLeases-len(piece.taken))]
		d.taken, d.given = d.taken[len(piece.taken):], d.given[len(piece.given):]
		piece.sum()
		d.sum()
		all = append(all, &piece)
	}
	return append(all, d)
}

// Takes reports whether d is something that was taken under a lease without the store.
func (d *Debt) Takes() bool { return len(d.taken) > 0 }

// Sent notes that the store may have been told of what d has taken.
func (d *Debt) Sent() {
	for i := range d.taken {
		d.taken[i].sent = true
	}
}

// Returns makes d, which gives something back, give back the lease under which the store holds something for charge i of c,
// or, if it has not replied, may hold it. It reports whether there is one.
func (d *Debt) Returns(c *Call, i int, replied bool) bool {
	back := &d.given[0]
	if back.lease = c.charges[i].lease; replied {
		back.lease = c.Found[i].Lease
	}
	return back.lease > 0
}

// owedLeases appends the leases of d: for how long they hold, how many were taken and how many given back, the taken ones
// with when they end and, of reservations, their hits, and the others.
func (c *Call) owedLeases(d *Debt) {
	letter := forms[limiter.Concurrency].letter
	if d.reserved {
		letter = "h"
	}
	c.args = append(c.args, letter, "", c.number(int64(d.Policy.Window/time.Second)), c.number(int64(len(d.taken))), c.number(int64(len(d.given))))
	for _, h := range d.taken {
		c.args = append(c.args, c.number(int64(h.lease)), c.number(h.end)) //nolint:gosec // a lease
		if d.reserved {
			c.args = append(c.args, c.number(int64(min(h.hits, mostHits))))
		}
	}
	for _, h := range d.given {
		c.args = append(c.args, c.number(int64(h.lease))) //nolint:gosec // a lease
	}
}
