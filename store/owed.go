package store

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// What the fallback has admitted is owed to the store: when it is back it is charged with that, before
// requests are sent to it again (repay.go). Otherwise each time that it goes away would grant a new
// allowance.

// mostDebts is how many counters a fleet's ledger has at most. Hits on others are forgotten, and a
// metric counts them.
const mostDebts = 1 << 16

// accounts are the debts of a fleet, its ledger.
type accounts struct {
	mu    sync.Mutex
	debts map[string]*debt // by the counters' names in the store
	most  int
	spare debt // of one charge, whose memory is used again
}

// A debt is what one counter of the store is owed.
type debt struct {
	name      string // with the start of a fixed window
	slot      uint16
	charge    limiter.Charge // whose counter it is; without a policy, which may change
	partition *limiter.Partition
	policy    limiter.Policy
	exceeded  func(hits uint64) // told of those beyond the limit; nil if nobody wants to know

	at             limiter.Time // of the newest hit, by the store's clock
	hits, admitted uint64       // charged, and those of them that were let pass
	cost, tat      amount       // of a bucket: of all its hits, and the TAT that they led to here
	runs           []stretch    // of a sliding window or a log
}

// A stretch is hits of one sub-window, or hits of a log that count from the last of them on.
type stretch struct {
	first, last int64 // numbers of sub-windows, or nanoseconds since 1970
	hits        uint64
}

// logStretches bounds the runs of a log: one is no longer than that part of the window.
const logStretches = 32

// debtOf makes d what charge i of b owes, which f decided at the time now of the store's clock. It reports
// false if that is nothing. It keeps the memory of d.
func (f Fallback) debtOf(d *debt, now limiter.Time, b *limiter.Batch, i int) bool {
	c, decided := &b.Charges[i], &b.Decisions[i]
	hits := decided.Charged
	if f == Allow {
		hits = c.Hits
	}
	if c.Refund || hits == 0 {
		return false
	}
	*d = debt{charge: limiter.Charge{ID: c.ID}, partition: b.Partition, policy: *c.Policy, at: now, hits: hits, runs: d.runs[:0]}
	if !decided.Over {
		d.admitted = hits
	}
	switch c.Policy.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := c.Policy.Bucket()
		d.cost = amountOf(k.Need(hits), k.Fine)
		if d.tat = instant(now, 0).plus(d.cost); f == Local {
			turn := b.Stored().Turn(now, i)
			d.tat = instant(turn.Time, turn.Sixteenths)
		}
	case limiter.SlidingWindow:
		length, _ := c.Policy.Ring()
		n := int64(now) / int64(length)
		d.run(stretch{n, n, hits})
	case limiter.SlidingLog:
		d.run(stretch{int64(now), int64(now), hits})
	default: // a fixed window counts hits alone
	}
	return true
}

// add adds what other, of the same counter, owes.
func (d *debt) add(other *debt) {
	d.policy, d.partition = other.policy, other.partition // rules may have been edited
	d.hits, d.admitted = min(d.hits+other.hits, mostHits), min(d.admitted+other.admitted, mostHits)
	d.at = max(d.at, other.at)
	// First d's hits and then other's make max(max(x + d.cost, d.tat) + other.cost, other.tat) of a TAT x.
	d.cost = d.cost.plus(other.cost)
	if d.tat = d.tat.plus(other.cost); d.tat.compare(other.tat) < 0 {
		d.tat = other.tat
	}
	for _, s := range other.runs {
		d.run(s)
	}
}

// run adds hits to d's runs. Those that are late count with the newest, and those that have ceased to count
// are dropped.
func (d *debt) run(s stretch) {
	near, window := int64(d.policy.Window)/logStretches, int64(d.policy.Window)
	if d.policy.Algorithm == limiter.SlidingWindow {
		_, k := d.policy.Ring()
		near, window = 0, int64(k)
	}
	if n := len(d.runs); n > 0 && s.last-d.runs[n-1].first <= near {
		last := &d.runs[n-1]
		last.last, last.hits = max(last.last, s.last), min(last.hits+s.hits, mostHits)
	} else {
		d.runs = append(d.runs, s)
	}
	for len(d.runs) > 1 && d.runs[0].last < s.last-window {
		d.runs = slices.Delete(d.runs, 0, 1)
	}
}

// less takes hits that were given back from d.
func (d *debt) less(hits uint64) {
	hits = min(hits, d.hits)
	d.hits -= hits
	d.admitted -= min(d.admitted, hits)
	if p := &d.policy; p.Algorithm == limiter.TokenBucket || p.Algorithm == limiter.LeakyBucket {
		k := p.Bucket()
		cost := amountOf(k.Need(hits), k.Fine)
		d.cost, d.tat = d.cost.minus(cost), d.tat.minus(cost)
	}
	for n := len(d.runs) - 1; n >= 0 && hits > 0; n-- {
		back := min(hits, d.runs[n].hits)
		d.runs[n].hits, hits = d.runs[n].hits-back, hits-back
	}
}

// addLocked adds d to what the counter of that name owes. It returns how many hits it has no room for. It keeps
// neither name nor d, and allocates nothing if the counter is known.
func (l *accounts) addLocked(name []byte, slot uint16, d *debt, exceeded func() func(hits uint64)) (forgotten uint64) {
	had := l.debts[string(name)]
	switch {
	case had != nil:
		had.add(d)
	case len(l.debts) >= l.most:
		return d.hits
	default:
		had = &debt{}
		*had = *d
		had.name, had.slot, had.runs = string(name), slot, slices.Clone(d.runs)
		if exceeded != nil {
			had.exceeded = exceeded()
		}
		l.debts[had.name] = had
	}
	return 0
}

// less takes hits that were given back from what a counter owes.
func (l *accounts) less(name []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.debts[string(name)]; d != nil {
		d.less(hits)
	}
}

// forget drops what a counter owes that is reset.
func (l *accounts) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.debts, name)
}

// take removes and returns what the counters of some slots owe, in the order of the slots.
func (l *accounts) take(has func(slot uint16) bool) (all []*debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range l.debts {
		if has(d.slot) {
			all = append(all, d)
			delete(l.debts, name)
		}
	}
	slices.SortFunc(all, func(a, b *debt) int { return cmp.Compare(a.slot, b.slot) })
	return all
}

// putBack is for debts that were taken and could not be charged.
func (l *accounts) putBack(all []*debt) (forgotten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range all {
		forgotten += l.addLocked([]byte(d.name), d.slot, d, func() func(uint64) { return d.exceeded })
	}
	return forgotten
}

// An amount is a span of time: seconds, and sixteenths of nanoseconds below one.
type amount struct{ seconds, parts int64 }

const partsOfSecond = 16 * int64(time.Second)

// amountOf returns a number of ticks, which are sixteenths of nanoseconds if fine is set, else
// nanoseconds.
func amountOf(ticks uint64, fine bool) amount {
	if fine {
		return amount{int64(ticks / uint64(partsOfSecond)), int64(ticks % uint64(partsOfSecond))} //nolint:gosec // below 2^60
	}
	return amount{int64(ticks / uint64(time.Second)), int64(ticks%uint64(time.Second)) * 16} //nolint:gosec // below 2^35
}

// instant returns a time as an amount since 1970.
func instant(t limiter.Time, sixteenths uint8) amount {
	return amount{int64(t) / int64(time.Second), int64(t)%int64(time.Second)*16 + int64(sixteenths)}
}

func (a amount) plus(b amount) amount {
	sum := amount{a.seconds + b.seconds, a.parts + b.parts}
	if sum.parts >= partsOfSecond {
		sum.seconds, sum.parts = sum.seconds+1, sum.parts-partsOfSecond
	}
	return sum
}

// minus returns a less b, at least 0.
func (a amount) minus(b amount) amount {
	if a.compare(b) <= 0 {
		return amount{}
	}
	rest := amount{a.seconds - b.seconds, a.parts - b.parts}
	if rest.parts < 0 {
		rest.seconds, rest.parts = rest.seconds-1, rest.parts+partsOfSecond
	}
	return rest
}

func (a amount) compare(b amount) int {
	return cmp.Or(cmp.Compare(a.seconds, b.seconds), cmp.Compare(a.parts, b.parts))
}

// float returns a in seconds, about.
func (a amount) float() float64 { return float64(a.seconds) + float64(a.parts)/float64(partsOfSecond) }
