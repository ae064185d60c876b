package soak

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// workers is the number of goroutines that use a table.
const workers = 8

// epoch is the start of simulated time: a boundary of all windows in use.
const epoch = limiter.Time(1_700_000_040 * time.Second)

// A trial is a kind of stress test, with the totals of all its rounds.
type trial struct {
	name   string
	policy limiter.Policy
	run    func(b *round)

	rounds        int
	ops, admitted int64
	peak, bound   int64 // the maximum admitted, and the bound
}

func (t *trial) add(b *round) {
	t.rounds++
	t.ops += b.ops.Load()
	t.admitted += b.admitted
	if t.rounds == 1 || b.bound-b.peak < t.bound-t.peak {
		t.peak, t.bound = b.peak, b.bound
	}
}

// A round is one run of a trial and its result.
type round struct {
	policy limiter.Policy
	rand   *rand.Rand
	small  bool

	ops         atomic.Int64
	admitted    int64
	peak, bound int64 // the maximum admitted, and the bound
	faults      []string
}

// scale returns n, or less in short tests.
func (b *round) scale(n int) int {
	if b.small {
		return n / 50
	}
	return n
}

func (b *round) faultf(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// recordPeak records the admitted peak and its bound, and reports a fault if the peak is larger.
func (b *round) recordPeak(what string, peak, bound int64) {
	if b.bound == 0 || bound-peak < b.bound-b.peak {
		b.peak, b.bound = peak, bound
	}
	if peak > bound {
		b.faultf("%s: admitted %d, want at most %d", what, peak, bound)
	}
}

// checkBound compares the grants of a counter with the policy's bound.
func (b *round) checkBound(what string, p *limiter.Policy, grants []grant) {
	b.admitted += sum(grants)
	got, bound := peak(p, grants)
	b.recordPeak(what, got, bound)
}

// table returns a new table for the policies.
func (b *round) table(bytes int64, policies ...limiter.Policy) *limiter.Table {
	t, err := limiter.New(limiter.Options{Bytes: bytes})
	if err != nil {
		panic("soak: " + err.Error()) // sizes are constants
	}
	return t
}

// together runs f on all workers concurrently.
func (b *round) together(f func(w *worker)) []*worker {
	all := make([]*worker, workers)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for n := range all {
		w := &worker{round: b, number: n, rand: rand.New(rand.NewPCG(b.rand.Uint64(), uint64(n)))}
		all[n] = w
		wg.Go(func() {
			<-start
			f(w)
			b.ops.Add(w.ops)
		})
	}
	close(start)
	wg.Wait()
	return all
}

// A worker is one of the goroutines.
type worker struct {
	round    *round
	number   int
	rand     *rand.Rand
	batch    limiter.Batch
	ops      int64
	grants   map[int][]grant
	refunded map[int]int64 // refunded hits
}

// counterID returns the ID of counter n. With pair all counters share one pair of blocks.
func counterID(n int, pair bool) identity.ID {
	id := identity.ID{Hi: uint64(n+1) << 40, Lo: 0x1234_5678_9abc_def0}
	if !pair {
		id = identity.ID{Hi: mix(uint64(n)), Lo: mix(^uint64(n))}
	}
	return id
}

// mix spreads a number over all 64 bits.
func mix(x uint64) uint64 {
	x = (x + 1) * 0x9e37_79b9_7f4a_7c15
	x = (x ^ x>>29) * 0xbf58_476d_1ce4_e5b9
	return x ^ x>>32
}

// decide decides one charge.
func (w *worker) decide(t *limiter.Table, now limiter.Time, c limiter.Charge) *limiter.Decision {
	b := &w.batch
	b.Reset()
	b.Budget = time.Minute
	b.Charges = append(b.Charges, c)
	t.Decide(now, b)
	w.ops++
	return &b.Decisions[0]
}

// charge charges hits to counter n at the clock's time and records them if they are admitted.
func (w *worker) charge(t *limiter.Table, clock *clock, n int, c limiter.Charge) bool {
	now := clock.now()
	return w.chargeAt(t, clock, now, n, c)
}

// chargeAt is charge at the given time, which may be in the past.
func (w *worker) chargeAt(t *limiter.Table, clock *clock, now limiter.Time, n int, c limiter.Charge) bool {
	d := w.decide(t, now, c)
	if d.Denied {
		return false
	}
	w.grant(n, grant{
		from: now + limiter.Time(d.Wait), to: max(clock.now(), now+limiter.Time(d.Wait)),
		end: now + limiter.Time(d.Reset), requestedAt: now, hits: int64(c.Hits),
	})
	return true
}

func (w *worker) grant(n int, g grant) {
	if w.grants == nil {
		w.grants = map[int][]grant{}
	}
	w.grants[n] = append(w.grants[n], g)
}

// A clock is simulated, or real if it has a start. It never goes back, but a worker may use an old
// reading.
type clock struct {
	simulated atomic.Int64
	start     time.Time
	seen      [workers]atomic.Int64 // last reading of each worker, if recorded
}

func newClock(start limiter.Time) *clock {
	c := &clock{}
	c.simulated.Store(int64(start))
	return c
}

func (c *clock) now() limiter.Time {
	if !c.start.IsZero() {
		return limiter.Time(c.start.UnixNano() + int64(time.Since(c.start)))
	}
	return limiter.Time(c.simulated.Load())
}

func (c *clock) advance(d time.Duration) { c.simulated.Add(int64(d)) }

// read returns the simulated time and records the worker's reading.
func (c *clock) read(w *worker) limiter.Time {
	for {
		now := c.simulated.Load()
		c.seen[w.number].Store(now)
		if c.simulated.Load() == now {
			return limiter.Time(now)
		}
	}
}

// leave records that a worker no longer reads the clock.
func (c *clock) leave(w *worker) { c.seen[w.number].Store(math.MaxInt64) }

// tick advances the clock from a worker's reading, as soon as no worker is late. No worker is ever
// late by more than two ticks.
func (c *clock) tick(reading limiter.Time, d time.Duration) {
	for i := range c.seen {
		for c.seen[i].Load() < int64(reading)-int64(d) {
			if c.now() != reading {
				return
			}
			runtime.Gosched()
		}
	}
	c.simulated.CompareAndSwap(int64(reading), int64(reading)+int64(d))
}
