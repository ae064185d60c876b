package store

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A hitsAt is hits that were wanted or admitted at a time.
type hitsAt struct {
	at   time.Time
	hits int
}

// A blockLedger records the hits of each counter, by the low half of its identity.
type blockLedger struct {
	mu       sync.Mutex
	policies map[uint64]*limiter.Policy
	wanted   map[uint64][]hitsAt
	admitted map[uint64][]hitsAt
}

func newBlockLedger() *blockLedger {
	return &blockLedger{policies: map[uint64]*limiter.Policy{}, wanted: map[uint64][]hitsAt{}, admitted: map[uint64][]hitsAt{}}
}

// requestAll sends one request with several charges now, and records what was admitted.
func (r *blockReplica) requestAll(l *blockLedger, charges ...limiter.Charge) {
	w, c := r.world, &caller{clock: r.store.options.Clock}
	l.mu.Lock()
	for _, of := range charges {
		l.policies[of.ID.Lo] = of.Policy
		l.wanted[of.ID.Lo] = append(l.wanted[of.ID.Lo], hitsAt{time.Now(), int(of.Hits)})
	}
	l.mu.Unlock()
	outage := w.lossy && !r.store.Up()
	done, err := c.start(r.store, 0, charges...)
	record := func(at time.Time) {
		must.OK(w.t, err)
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, of := range charges {
			if d := &c.b.Decisions[i]; !d.Over && !d.Denied && d.Charged > 0 && !outage {
				l.admitted[of.ID.Lo] = append(l.admitted[of.ID.Lo], hitsAt{at, int(d.Charged)})
			}
		}
	}
	if done {
		record(time.Now())
		return
	}
	r.waited.Add(1)
	go func() {
		err = <-c.decided
		record(time.Now().Add(-w.trip)) // the store decides by the time at which the charges were sent
	}()
}

// room returns a function that reports whether hits at a time, together with all earlier ones, are
// within the limit of p. Times must not decrease.
func room(p *limiter.Policy) func(at time.Time, hits int) bool {
	counts := map[int64]int{}
	var tat int64
	return func(at time.Time, hits int) bool {
		now := at.UnixNano()
		switch p.Algorithm {
		case limiter.FixedWindow:
			end := int64(p.WindowEnd(limiter.Time(now)))
			if counts[end]+hits > int(p.Limit) {
				return false
			}
			counts[end] += hits
		case limiter.SlidingWindow:
			x, sum := p.Ring().Number(limiter.Time(now)), hits
			for i := range p.Ring().K() + 1 {
				sum += counts[x-i]
			}
			if sum > int(p.Limit) {
				return false
			}
			counts[x] += hits
		default:
			k := p.Bucket()
			step, full := int64(k.Duration(k.Step)), int64(k.Duration(k.Full))
			after := max(tat, now) + int64(hits)*step
			if after-now > full {
				return false
			}
			tat = after
		}
		return true
	}
}

// check verifies that no counter exceeded its limit. It returns the number of admitted hits, and of
// those that one limiter would have admitted.
func (l *blockLedger) check(t *testing.T) (admitted, admissible int) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.policies {
		inOrder := func(a, b hitsAt) int { return a.at.Compare(b.at) }
		slices.SortStableFunc(l.admitted[id], inOrder)
		slices.SortStableFunc(l.wanted[id], inOrder)
		fits := room(p)
		for _, h := range l.admitted[id] {
			if admitted += h.hits; !fits(h.at, h.hits) {
				t.Fatalf("counter %d: %d hits at %v exceed the limit of %+v", id, h.hits, h.at.UTC(), *p)
			}
		}
		fits = room(p)
		for _, h := range l.wanted[id] {
			if fits(h.at, h.hits) {
				admissible += h.hits
			}
		}
	}
	return admitted, admissible
}

// admittedOf returns the number of admitted hits of a counter.
func (l *blockLedger) admittedOf(id uint64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.admitted[id] {
		n += h.hits
	}
	return n
}

func chargeOn(id uint64, p *limiter.Policy) limiter.Charge {
	return limiter.Charge{ID: identity.ID{Lo: id, Hi: id}, Policy: p, Hits: 1}
}

// Blocks of all algorithms admit all hits of the limit and no more, with few commands.
func TestBlocksOfAlgorithms(t *testing.T) {
	bucket := func(limit, burst uint32, window time.Duration) *limiter.Policy {
		return &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: limit, Burst: burst, Window: window}
	}
	sliding := func(limit, parts uint32, window time.Duration) *limiter.Policy {
		return &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: limit, SubWindows: parts, Window: window}
	}
	leaky := &limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1000, Slack: 5000, Window: time.Second}
	several := []*limiter.Policy{
		bucket(1000, 1000, time.Second),
		sliding(20_000, 10, 10*time.Second),
		{Algorithm: limiter.FixedWindow, Limit: 60_000, Window: time.Minute},
	}
	for _, tt := range []struct {
		name     string
		policies []*limiter.Policy
		demand   float64 // relative to the first limit
		admitted float64 // of the admissible hits, at least
		commands float64 // per request, at most
	}{
		{"bucket", []*limiter.Policy{bucket(1000, 1000, time.Second)}, 0.9, 0.999, 0.1},
		{"bucket, overloaded", []*limiter.Policy{bucket(1000, 1000, time.Second)}, 3, 0.99, 0.4},
		{"large bucket", []*limiter.Policy{bucket(100_000, 50_000, time.Minute)}, 0.9, 0.999, 0.1},
		{"large bucket, overloaded", []*limiter.Policy{bucket(100_000, 50_000, time.Minute)}, 20, 0.99, 0.4},
		{"leaky bucket", []*limiter.Policy{leaky}, 2, 0.98, 0.4},
		{"sliding window", []*limiter.Policy{sliding(6000, 10, 10*time.Second)}, 0.8, 0.999, 0.1},
		{"sliding window, overloaded", []*limiter.Policy{sliding(6000, 10, 10*time.Second)}, 3, 0.98, 0.4},
		{"several", several, 0.9, 0.999, 0.3},
		{"several, overloaded", several, 3, 0.98, 0.4},
	} {
		took := 25 * time.Second
		if tt.demand > 10 { // most requests of all
			took = time.Duration(min(effort.Times(t, 10), 25)) * time.Second
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l := newBlockWorld(t, 3, time.Millisecond), newBlockLedger()
				rng := rand.New(rand.NewPCG(1, 2))
				var charges []limiter.Charge
				for i, p := range tt.policies {
					charges = append(charges, chargeOn(uint64(i+1), p))
					charges[i].Group = int32(i)
				}
				rate := tt.demand * float64(tt.policies[0].Limit) / tt.policies[0].Window.Seconds()
				commands, n := w.commands.Load(), 0
				for start := time.Now(); time.Since(start) < took; n++ {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate))
					w.replicas[rng.IntN(3)].requestAll(l, charges...)
				}
				each := float64(w.commands.Load()-commands) / float64(n)
				time.Sleep(time.Second)
				admitted, admissible := l.check(t)
				t.Logf("%d requests: %.4f commands and %.4f waits per request, %.5f of the admissible hits admitted", n, each, float64(w.waited())/float64(n), float64(admitted)/float64(admissible))
				if each > tt.commands || float64(admitted) < tt.admitted*float64(admissible) {
					t.Errorf("%.4f commands per request and %d of %d hits admitted, want at most %v and at least %v", each, admitted, admissible, tt.commands, tt.admitted)
				}
			})
		})
	}
}

// No limit of any algorithm is exceeded, whatever the demand, and however often connections fail.
func TestBlocksOfAlgorithmsRandom(t *testing.T) {
	for seed := range uint64(effort.Times(t, 3)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testBlocksOfAlgorithms(t, seed) })
		})
	}
}

// randomPolicy returns a policy that uses blocks.
func randomPolicy(rng *rand.Rand) *limiter.Policy {
	p := &limiter.Policy{Limit: uint32(50 + rng.IntN(1500)), Window: time.Duration(1+rng.IntN(4)) * time.Second}
	switch rng.IntN(4) {
	case 0:
		p.Algorithm, p.CountRefused = limiter.FixedWindow, rng.IntN(2) == 0
	case 1:
		p.Algorithm, p.CountRefused = limiter.SlidingWindow, rng.IntN(2) == 0
		p.SubWindows = uint32(1 + rng.IntN(int(p.Window/(2*minLife))))
	case 2:
		p.Algorithm, p.Burst = limiter.TokenBucket, p.Limit+rng.Uint32N(p.Limit)
	default:
		p.Algorithm, p.Slack = limiter.LeakyBucket, p.Limit+rng.Uint32N(p.Limit)
	}
	return p
}

func testBlocksOfAlgorithms(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	w, l := newBlockWorld(t, 1+rng.IntN(4), time.Duration(1+rng.IntN(20))*time.Millisecond), newBlockLedger()
	var all []limiter.Charge
	for i := range 1 + rng.IntN(4) {
		all = append(all, chargeOn(uint64(i+1), randomPolicy(rng)))
	}
	least := slices.MinFunc(all, func(a, b limiter.Charge) int { return cmp.Compare(a.Policy.Limit, b.Policy.Limit) }).Policy
	demand := (0.5 + 3*rng.Float64()) * float64(least.Limit) / least.Window.Seconds()
	favourite, nextFault, faulty := 0, time.Now().Add(time.Second), rng.IntN(2) == 0
	often, largest := 1+rng.IntN(10), []int{2, 10, 100}[rng.IntN(3)]
	demand = max(20, demand*float64(often)/float64(often+largest/2))
	for start := time.Now(); time.Since(start) < 8*time.Second; {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / demand))
		switch rng.IntN(int(demand)) { // about once a second each
		case 0:
			favourite = rng.IntN(len(w.replicas))
		case 1:
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		case 2: // a burst
			c := all[rng.IntN(len(all))]
			for range c.Policy.Capacity() {
				w.replicas[rng.IntN(len(w.replicas))].requestAll(l, c)
			}
		}
		if faulty && time.Now().After(nextFault) {
			nextFault = time.Now().Add(time.Duration(200+rng.IntN(2000)) * time.Millisecond)
			w.replicas[rng.IntN(len(w.replicas))].cut()
		}
		r := w.replicas[favourite]
		if rng.IntN(3) == 0 {
			r = w.replicas[rng.IntN(len(w.replicas))]
		}
		charges := slices.Clone(all[:1+rng.IntN(len(all))])
		if rng.IntN(4) == 0 {
			charges = charges[len(charges)-1:]
		}
		grouped := rng.IntN(3) == 0
		for i := range charges {
			if !grouped {
				charges[i].Group = int32(i)
			}
			if rng.IntN(often) == 0 {
				charges[i].Hits = 1 + rng.Uint64N(uint64(largest))
			}
		}
		r.requestAll(l, charges...)
	}
	time.Sleep(2 * time.Second)
	admitted, admissible := l.check(t)
	t.Logf("%d of %d admissible hits admitted", admitted, admissible)
}

// After the burst of a bucket was raised, its blocks have room up to the new burst.
func TestBlocksOfAnEditedBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
		before := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}
		after := *before
		after.Burst = 60_000
		commands := int64(0)
		for n := range 15_000 {
			p := before
			if n > 3000 {
				p = &after
			}
			if n == 9000 {
				commands = w.commands.Load()
			}
			time.Sleep(time.Second / 3000)
			w.replicas[0].requestAll(l, chargeOn(1, p))
		}
		if n := w.commands.Load() - commands; n > 600 {
			t.Errorf("%d commands for 6000 requests: blocks have the old burst", n)
		}
	})
}

// A balance is used until it ends, by the clock and by the monotonic clock, which stands still while
// a machine is suspended.
func TestBalanceEnds(t *testing.T) {
	for _, tt := range []struct {
		at      limiter.Time
		elapsed time.Duration
		usable  bool
	}{
		{9, 49, false},
		{10, 49, true},
		{99, 49, true},
		{100, 49, false},
		{99, 50, false},
	} {
		var b balance
		b.start.Store(10)
		b.end.Store(100)
		b.until.Store(50)
		if b.usable(moment{store: tt.at, elapsed: tt.elapsed}) != tt.usable {
			t.Errorf("%+v", tt)
		}
	}
}

// A request that one of its limits denies takes nothing from the blocks of the others in its group.
func TestBlocksOfADeniedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, l := w.replicas[0], newBlockLedger()
		large := chargeOn(1, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow})
		small := chargeOn(2, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 200, Window: limiter.MaxWindow})
		local := 0
		for range 2000 {
			time.Sleep(time.Millisecond)
			r.requestAll(l, large)
			before := r.unused()
			waited := r.waited.Load()
			if r.requestAll(l, large, small); r.waited.Load() > waited || r.store.blocks.counters()[0].acquiring.Load() {
				continue
			}
			if local++; r.unused() < before && l.admittedOf(2) == 200 {
				t.Fatalf("a denied request took %d hits from a block", before-r.unused())
			}
		}
		if local < 1000 {
			t.Errorf("only %d requests were decided locally", local)
		}
		l.check(t)
	})
}

// The store takes hits of a block back in the sub-window that they were charged to, also later: they
// are not taken off the hits of another one.
func TestBlocksAreReturnedToTheirSubWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 100, SubWindows: 2, Window: time.Second}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		w.fill(p, 4)
		r, c := w.replicas[0], caller{}
		h := r.store.blocks.counters()[0]
		if !h.acquiring.CompareAndSwap(false, true) { // a further block would change the counter
			t.Fatal("a block is being acquired")
		}
		b := h.windowOf(periodAt(p, limiter.Time(time.Now().UnixNano())).end)
		end := time.Unix(0, b.end.Load())
		state, hits := b.state.Load(), b.clear()
		one, peek := oneHit(1, p), oneHit(1, p)
		peek.Hits = 0
		used := func() uint64 {
			must.OK(t, c.decide(r.store, peek))
			return c.b.Decisions[0].Before
		}
		for _, late := range []bool{false, true} {
			if late {
				time.Sleep(time.Until(end))
				must.OK(t, c.decide(r.store, one))
			}
			before := used()
			r.store.returnHits(h, hits/2, limiter.Time(end.UnixNano()), state)
			time.Sleep(10 * time.Millisecond) // until it is sent
			if back := before - used(); back != hits/2 {
				t.Errorf("late %v: the store took %d of %d hits back", late, back, hits/2)
			}
		}
		time.Sleep(time.Until(end.Add(time.Second))) // only the later sub-window counts
		if n := used(); n != 1 {
			t.Errorf("the later sub-window has %d hits, want 1", n)
		}
	})
}

// A bucket that refills slowly has no blocks: their unused hits would be missing for a long time.
func TestSlowBucketHasNoBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Hour}
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			w.replicas[0].requestAll(l, chargeOn(1, p))
		}
		time.Sleep(time.Second)
		if n := w.hitsOf(blockAcquired); n != 0 || l.admittedOf(1) != 300 {
			t.Errorf("%d hits of blocks and %d of 300 hits admitted, want none and all", n, l.admittedOf(1))
		}
	})
}
