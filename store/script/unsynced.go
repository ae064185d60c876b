package script

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// An Unsynced is hits and leases of one counter that were admitted without the store, and that the
// store is to be charged with.
type Unsynced struct {
	Name      string // name of the counter, with the start of a fixed window
	Slot      uint16
	Charge    limiter.Charge // identifies the counter; without a policy, which may change
	Partition *limiter.Partition
	Policy    limiter.Policy
	Exceeded  func(hits uint64) // called with the number of hits beyond the limit; may be nil

	at             limiter.Time // time of the newest hit, by the store's clock
	Hits, Admitted uint64       // charged hits, and those of them that were admitted
	cost, tat      amount       // cost of all hits of a bucket, and its TAT after them without the store
	Runs           []hitRun     // hits of a sliding window or a log
	acquired       []heldLease  // leases of a concurrency limit that were granted without the store
	released       []heldLease  // leases that were released
	reserved       bool         // acquired and released are reservations of the counter
}

// A hitRun is the hits of one sub-window, or hits of a log, which are charged with the time of the
// last one.
type hitRun struct {
	first, last int64 // numbers of sub-windows, or nanoseconds since 1970
	hits        uint64
}

// LogRuns bounds the number of runs of a log: a run is not longer than this part of the window.
const LogRuns = 32

// Set sets d to the hits or the lease of charge i of b, which was decided at the time now of the
// store's clock: in a table, or by admitting everything. It reports false if there is nothing to
// sync. It reuses the memory of d. Refunds are not synced, except for released leases, which must
// be the counter's.
func (d *Unsynced) Set(now limiter.Time, b *limiter.Batch, i int, inTable bool) bool {
	c := &b.Charges[i]
	decided := &b.Decisions[i]
	hits := b.Stored().Hits(i)
	if inTable {
		hits = decided.Charged
	}
	if !usesLease(c) && (c.Refund || hits == 0 || decided.Skipped) {
		return false
	}
	policy := *c.Policy
	policy.Penalty = nil // penalties are not synced
	policy.Reserve = nil
	*d = Unsynced{
		Charge: limiter.Charge{ID: c.ID}, Partition: b.Partition, Policy: policy.Clone(nil), at: now, Hits: hits,
		Runs: d.Runs[:0], acquired: d.acquired[:0], released: d.released[:0],
	}
	if usesLease(c) { // reservations have an entry of their own
		return d.setLease(now, b, i)
	}
	if !decided.Over {
		d.Admitted = hits
	}
	switch c.Policy.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := c.Policy.Bucket()
		d.cost = amountOf(k.Need(hits), k.Fine())
		d.tat = instant(now, 0).plus(d.cost)
		if inTable {
			after := b.Stored().BucketAfter(now, i)
			d.tat = instant(after.Time, after.Sixteenths)
		}
	case limiter.SlidingWindow:
		n := c.Policy.Ring().Number(now)
		d.addRun(hitRun{n, n, hits})
	case limiter.SlidingLog:
		d.addRun(hitRun{int64(now), int64(now), hits})
	case limiter.FixedWindow, limiter.Concurrency: // nothing to add
	}
	return true
}

// ExpiresAt returns when d ceases to matter: its window is over, its bucket drained, or its leases
// have expired.
func (d *Unsynced) ExpiresAt() limiter.Time {
	p := &d.Policy
	switch p.Algorithm {
	case limiter.FixedWindow:
		return p.WindowEnd(d.at) + keyMargin
	case limiter.SlidingWindow:
		r := p.Ring()
		if r.Calendar() == nil {
			return d.at + limiter.Time(r.Length())*limiter.Time(r.K()+2)
		}
		_, end := r.Calendar().Window(d.at)
		_, end = r.Calendar().Window(end)
		return end
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := p.Bucket()
		highest := amountOf(k.MaxLevel, k.Fine())
		return d.at + limiter.Time(highest.seconds+1)*limiter.Time(time.Second)
	case limiter.Concurrency:
		return d.lastLeaseExpiry()
	case limiter.SlidingLog:
	}
	return d.at + limiter.Time(p.Window)
}

// At returns the time of the newest hit of d, by the store's clock.
func (d *Unsynced) At() limiter.Time { return d.at }

// Add adds other, of the same counter. It returns the number of hits for which d has no room.
func (d *Unsynced) Add(other *Unsynced) (dropped uint64) {
	d.Policy = other.Policy
	d.Partition = other.Partition // rules may have been edited
	d.Hits = min(d.Hits+other.Hits, maxHits)
	d.Admitted = min(d.Admitted+other.Admitted, maxHits)
	d.at = max(d.at, other.at)
	// d's hits and then other's change a TAT x to max(max(x + d.cost, d.tat) + other.cost,
	// other.tat).
	d.cost = d.cost.plus(other.cost)
	if d.tat = d.tat.plus(other.cost); d.tat.compare(other.tat) < 0 {
		d.tat = other.tat
	}
	for _, s := range other.Runs {
		d.addRun(s)
	}
	if d.Policy.UsesLeases() {
		return d.addLeases(other)
	}
	return 0
}

// Clone returns a copy of d with memory of its own.
func (d *Unsynced) Clone() *Unsynced {
	own := *d
	own.Runs = slices.Clone(d.Runs)
	own.acquired = slices.Clone(d.acquired)
	own.released = slices.Clone(d.released)
	return &own
}

// addRun adds hits to d's runs. Late hits count with the newest ones, and expired ones are dropped.
func (d *Unsynced) addRun(s hitRun) {
	near := int64(d.Policy.Window) / LogRuns
	window := int64(d.Policy.Window)
	if d.Policy.Algorithm == limiter.SlidingWindow {
		near = 0
		window = d.Policy.Ring().K()
	}
	if n := len(d.Runs); n > 0 && s.last-d.Runs[n-1].first <= near {
		last := &d.Runs[n-1]
		last.last = max(last.last, s.last)
		last.hits = min(last.hits+s.hits, maxHits)
	} else {
		d.Runs = append(d.Runs, s)
	}
	for len(d.Runs) > 1 && d.Runs[0].last < s.last-window {
		d.Runs = slices.Delete(d.Runs, 0, 1)
	}
}

// Subtract subtracts refunded hits.
func (d *Unsynced) Subtract(hits uint64) {
	hits = min(hits, d.Hits)
	d.Hits -= hits
	d.Admitted -= min(d.Admitted, hits)
	if p := &d.Policy; p.Algorithm == limiter.TokenBucket || p.Algorithm == limiter.LeakyBucket {
		k := p.Bucket()
		cost := amountOf(k.Need(hits), k.Fine())
		d.cost = d.cost.minus(cost)
		d.tat = d.tat.minus(cost)
	}
	for n := len(d.Runs) - 1; n >= 0 && hits > 0; n-- {
		back := min(hits, d.Runs[n].hits)
		d.Runs[n].hits -= back
		hits -= back
	}
}

// Cost estimates how long the script takes for d.
func (d *Unsynced) Cost() time.Duration {
	return CostOf(&d.Policy, d.Hits) + time.Duration(d.LeaseCount())*costOfLease
}

// beyondLimit returns by how many hits d moved a counter, now in state s, further beyond its limit.
// It is for counters whose denied hits do not count.
func (d *Unsynced) beyondLimit(s *limiter.State) uint64 {
	used := s.Hits
	for _, n := range s.Counts {
		used += uint64(n)
	}
	before := used - min(used, d.Hits)
	after := before + d.Admitted
	return after - min(after, max(before, d.Policy.Capacity()))
}

// readExcess reads the TAT of a bucket before a charge, and after it as if the level had no maximum.
// It returns by how many hits the bucket moved further beyond full.
func (r *reply) readExcess(k limiter.Bucket) uint64 {
	full := instant(r.Now, 0).plus(amountOf(k.Full, k.Fine()))
	before := amount{r.next(), r.next()}.minus(full)
	beyond := amount{r.next(), r.next()}.minus(full).minus(before)
	step := amountOf(k.Step, k.Fine())
	if k.Step == 0 {
		return 0
	}
	return uint64(min(max(math.Ceil(beyond.float()/step.float()-1e-9), 0), maxHits)) // the server may send any number
}

// AppendUnsynced appends d as arguments of sync.lua. It reports false if d's window is over.
func (c *Call) AppendUnsynced(now limiter.Time, d *Unsynced, jitter time.Duration) bool {
	p := &d.Policy
	at := charge{algorithm: p.Algorithm, first: true, keyArg: len(c.args) + 1}
	switch p.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := p.Bucket()
		c.args = append(c.args, "b", "")
		c.appendAmount(d.cost)
		c.appendAmount(d.tat)
		c.appendAmount(amountOf(k.MaxLevel, k.Fine()))
		c.appendTicks(int64(k.MaxLevel), k.Fine()) //nolint:gosec // below 2^62
	case limiter.SlidingWindow:
		at.ring = p.Ring()
		c.args = append(c.args, "r", "")
		c.appendRing(now, at.ring)
		c.args = append(c.args, c.number(int64(len(d.Runs))))
		for _, s := range d.Runs {
			c.args = append(c.args, c.number(s.last), c.number(int64(s.hits))) //nolint:gosec // at most maxHits
		}
	case limiter.SlidingLog:
		runs := d.newestRuns(uint64(min(p.Limit, limiter.MaxLog)))
		c.args = append(c.args, "l", "", c.number(int64(min(p.Limit, limiter.MaxLog))),
			c.number(int64(p.Window/time.Second)), c.number(int64(len(runs))))
		for _, s := range runs {
			c.args = append(c.args, c.number(s.last/int64(time.Second)), c.number(s.last%int64(time.Second)), c.number(int64(s.hits))) //nolint:gosec // at most the limit
		}
	case limiter.Concurrency:
		c.appendUnsyncedLeases(d)
	case limiter.FixedWindow:
		at.end = p.WindowEnd(d.at)
		if at.end+keyMargin <= now {
			return false
		}
		c.args = append(c.args, "f", "", c.number(int64(min(d.Hits, maxHits))), c.number(c.expires(&at, p, jitter)))
	}
	at.key, _ = c.keyIndex(d.Name)
	c.charges = append(c.charges, at)
	return true
}

// newestRuns returns the newest of a log's hits, at most the given number.
func (d *Unsynced) newestRuns(limit uint64) []hitRun {
	n := len(d.Runs)
	for n > 0 && limit > 0 {
		n--
		d.Runs[n].hits = min(d.Runs[n].hits, limit)
		limit -= d.Runs[n].hits
	}
	return d.Runs[n:]
}

// ReadSynced reads the part of sync.lua's reply for charge i, made by AppendUnsynced from d: the
// counter's state, and by how many hits it moved further beyond its limit; or the error because of
// which it was not charged. An error of the reply itself is in r.Reply.Err.
func (r *Run) ReadSynced(i int, d *Unsynced, s *limiter.State) (why *redis.Error, excess uint64) {
	c := r.calls[0]
	if r.Reply.nextIs(resp.Bulk) {
		text := redis.NewServerError(r.Reply.readText())
		return redis.NewError(text), 0
	}
	r.Reply.next()
	at := &c.charges[i]
	r.Reply.readCounter(&r.Message, c, at, s)
	if d.reserved {
		return nil, 0
	}
	if at.algorithm == limiter.TokenBucket || at.algorithm == limiter.LeakyBucket {
		return nil, r.Reply.readExcess(d.Policy.Bucket())
	}
	return nil, d.beyondLimit(s)
}
