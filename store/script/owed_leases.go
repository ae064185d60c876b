package script

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A hold is a place, or a reservation, that a replica gave while it was without the store, or that the store may hold
// although no caller has its lease.
type hold struct {
	lease uint64
	hits  uint64 // 1 of a place
	end   int64  // when it is free by itself at the latest, in milliseconds since 1970
	kept  bool   // of a stray place: its caller has the lease, but not the next one, which the store may have given
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
func (d *Debt) Leases() int { return len(d.taken) + len(d.given) + len(d.strays) }

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

// NewStray returns a debt for charge i of b, which takes something under a lease. Which lease is to be returned is known
// when [Debt.Strays] has reported true. The time now is later than the charge was sent.
func NewStray(now limiter.Time, b *limiter.Batch, i int) *Debt {
	c := &b.Charges[i]
	d := &Debt{Charge: limiter.Charge{ID: c.ID}, Partition: b.Partition, Policy: *c.Policy, at: now}
	d.Policy.Penalty, d.Policy.Reserve = nil, nil
	if c.Policy.Reserve != nil {
		d.Policy, d.reserved = *c.Policy.Reserve.Hold(), true
	}
	d.strays = []hold{{end: d.end(now)}}
	return d
}

// Strays reports whether the store may hold something for charge i of c that its caller, which has another lease or none
// (0), does not have. If the store has not replied, the charge is taken to have the lease that it proposed.
func (d *Debt) Strays(c *Call, i int, replied bool, has uint64) bool {
	s := &d.strays[0]
	if s.lease = c.Lease(i); replied {
		s.lease = c.Found[i].Lease
		return s.lease != 0 && s.lease != has
	}
	s.kept = s.lease == has
	return !s.kept || !d.reserved
}

// sum makes the hits of d those of its leases.
func (d *Debt) sum() {
	d.Hits = 0
	for _, h := range d.taken {
		d.Hits += h.hits
	}
	d.Admitted = d.Hits
}

// addLeases adds those of other. What was taken and is given back is owed no more. It returns the hits of those that it has
// no room for.
func (d *Debt) addLeases(other *Debt) (forgotten uint64) {
	for _, h := range other.taken {
		if !d.Gave(h.lease) { // else other was on its way to the store, which may hold it
			d.taken = append(d.taken, h)
		}
	}
	for _, back := range other.given {
		n := len(d.taken)
		d.taken = slices.DeleteFunc(d.taken, func(h hold) bool { return h.lease == back.lease })
		if len(d.taken) == n && !d.Gave(back.lease) {
			d.given = append(d.given, back)
		}
	}
	d.strays = append(d.strays, other.strays...)
	d.dropEnded(d.at)
	for _, h := range d.taken[:max(0, len(d.taken)-mostLeases)] {
		forgotten += h.hits
	}
	d.taken, d.given, d.strays = newest(d.taken), newest(d.given), newest(d.strays)
	d.sum()
	return forgotten
}

// ended returns what reports whether a hold is free by itself at the time now.
func ended(now limiter.Time) func(h hold) bool {
	return func(h hold) bool { return h.end <= int64(now)/int64(time.Millisecond) }
}

// newest returns the mostLeases newest of all.
func newest(all []hold) []hold { return all[max(0, len(all)-mostLeases):] }

// dropEnded drops what is free by itself at the time now.
func (d *Debt) dropEnded(now limiter.Time) {
	d.taken, d.strays = slices.DeleteFunc(d.taken, ended(now)), slices.DeleteFunc(d.strays, ended(now))
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
	for _, all := range [...][]hold{d.taken, d.given, d.strays} {
		for _, h := range all {
			end = max(end, h.end)
		}
	}
	return limiter.Time(end) * limiter.Time(time.Millisecond)
}

// Pieces returns d in as many debts as it takes runs.
func (d *Debt) Pieces() (all []*Debt) {
	for d.Leases() > pieceOfLeases {
		piece := *d // strays first: they depend on what is written of the taken ones
		piece.strays = d.strays[:min(len(d.strays), pieceOfLeases)]
		piece.taken = d.taken[:min(len(d.taken), pieceOfLeases-len(piece.strays))]
		piece.given = d.given[:min(len(d.given), pieceOfLeases-len(piece.strays)-len(piece.taken))]
		d.strays, d.taken, d.given = d.strays[len(piece.strays):], d.taken[len(piece.taken):], d.given[len(piece.given):]
		piece.sum()
		d.sum()
		all = append(all, &piece)
	}
	return append(all, d)
}

// Unheld reports whether d is what a request took of the fallback, and the store, which has decided c, does not hold.
func (d *Debt) Unheld(c *Call) bool {
	return len(d.taken) > 0 && !slices.ContainsFunc(c.Found, func(s limiter.State) bool { return s.Lease == d.taken[0].lease })
}

// owedLeases appends the leases of d: for how long they hold, how many were taken, given back and are strays, the taken ones
// with when they end and, of reservations, their hits, and the others. Places also have what their leases are made of,
// and a stray place whose caller has the lease is negative.
func (c *Call) owedLeases(d *Debt) {
	letter := forms[limiter.Concurrency].letter
	if d.reserved {
		letter = "h"
	}
	c.args = append(c.args, letter, "", c.number(int64(d.Policy.Window/time.Second)), c.number(int64(len(d.taken))),
		c.number(int64(len(d.given))), c.number(int64(len(d.strays))))
	if !d.reserved {
		c.args = append(c.args, c.number(int64(sealOf(d.Name)))) //nolint:gosec // small
	}
	for _, h := range d.taken {
		c.args = append(c.args, c.number(int64(h.lease)), c.number(h.end)) //nolint:gosec // a lease
		if d.reserved {
			c.args = append(c.args, c.number(int64(min(h.hits, mostHits))))
		}
	}
	for _, h := range d.given {
		c.args = append(c.args, c.number(int64(h.lease))) //nolint:gosec // a lease
	}
	for _, h := range d.strays {
		lease := int64(h.lease) //nolint:gosec // a lease
		if h.kept {
			lease = -lease
		}
		c.args = append(c.args, c.number(lease))
	}
}
