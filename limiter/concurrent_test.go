package limiter

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const workers = 8

// together runs f on all workers concurrently.
func together(f func(worker int, r *rand.Rand)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			<-start
			f(w, rand.New(rand.NewPCG(uint64(w), 1)))
		})
	}
	close(start)
	wg.Wait()
}

// TestConcurrentTotal checks that exactly the limit is admitted, also while other counters compete
// for the slot.
func TestConcurrentTotal(t *testing.T) {
	const limit, tries, others = 5000, 2000, 10_000
	for _, storm := range []bool{false, true} {
		tab := newTable(t, MinBytes)
		ids, p := samePair(1+others), perMinute(limit)
		for range 10 {
			decide(tab, min1, oneHit(ids[0], p))
		}
		var passed atomic.Int64
		together(func(w int, r *rand.Rand) {
			b := &Batch{Charges: make([]Charge, 1)}
			for range tries {
				b.Charges[0] = oneHit(ids[0], p)
				if tab.Decide(min1, b); !b.Denied {
					passed.Add(1)
				}
				if storm && w%2 == 0 {
					b.Charges[0] = oneHit(ids[1+r.IntN(others)], p)
					tab.Decide(min1, b)
				}
			}
		})
		if got, want := passed.Load(), int64(limit-10); got != want {
			t.Errorf("storm %v: %d hits were admitted, want %d", storm, got, want)
		}
		if s := tab.Stats(); (s.Evicted > 0) != storm {
			t.Errorf("storm %v: %+v", storm, s)
		}
	}
}

// meet returns when all workers have called it for the same round.
func meet(arrived *atomic.Int64, round int) {
	for arrived.Add(1); arrived.Load() < int64(workers*(round+1)); {
		runtime.Gosched()
	}
}

// TestConcurrentGroups charges groups with the same counters in all orders: no limit is exceeded,
// and denied groups leave no charge. Each round has three new counters that fill up quickly.
func TestConcurrentGroups(t *testing.T) {
	const rounds = 1000
	tab := newTable(t, 1<<20)
	limits := []uint32{5, 3, 4}
	var admitted [3 * rounds]atomic.Int64
	var arrived, denied atomic.Int64
	together(func(_ int, r *rand.Rand) {
		b := &Batch{}
		for round := range rounds {
			b.Reset()
			numbers := r.Perm(3)
			if r.IntN(4) == 0 {
				numbers[2] = numbers[0] // a counter twice
			}
			for _, n := range numbers {
				id := counterID(3*round + n)
				b.Charges = append(b.Charges, Charge{ID: id, Policy: perMinute(limits[n]), Hits: 1})
			}
			meet(&arrived, round)
			tab.Decide(min1, b)
			for i, n := range numbers {
				d := b.Decisions[i]
				if b.Denied != d.Denied || d.Denied == (d.Charged > 0) {
					t.Errorf("Denied = %v, decision %+v", b.Denied, d)
				}
				admitted[3*round+n].Add(int64(d.Charged))
			}
			if b.Denied {
				denied.Add(1)
			}
		}
	})
	for n := range admitted {
		limit := limits[n%3]
		got := decide(tab, min1, Charge{ID: counterID(n), Policy: perMinute(limit)}).Decisions[0].Before
		if want := uint64(admitted[n].Load()); got != want || got > uint64(limit) {
			t.Errorf("counter %d: used %d, want the %d that were admitted, at most %d", n, got, want, limit)
		}
	}
	if denied.Load() < rounds {
		t.Errorf("%d groups were denied, want many", denied.Load())
	}
}

// TestConcurrentQuota checks that a passing request with quota members in groups has charged one of
// them.
func TestConcurrentQuota(t *testing.T) {
	const quota = 500
	tab := newTable(t, MinBytes)
	var passed atomic.Int64
	together(func(int, *rand.Rand) {
		for range 200 {
			b := decide(tab, min1,
				Charge{ID: counterID(1), Policy: perMinute(1 << 20), Hits: 1},
				Charge{ID: counterID(2), Policy: perMinute(quota / 2), Hits: 1, Mode: Quota},
				Charge{ID: counterID(3), Policy: perMinute(quota / 2), Hits: 1, Mode: Quota, Group: 1},
			)
			if !b.Denied {
				passed.Add(1)
				if b.Decisions[1].Charged+b.Decisions[2].Charged == 0 {
					t.Errorf("a request passed without quota: %+v", b.Decisions)
				}
			}
		}
	})
	b := decide(tab, min1, Charge{ID: counterID(1), Policy: perMinute(1)})
	if got, want := b.Decisions[0].Before, uint64(passed.Load()); got != want || got > quota || got < quota/2 {
		t.Errorf("used %d, want the %d admitted hits, %d to %d", got, want, quota/2, quota)
	}
}

// TestConcurrentInsert checks that a new counter with many concurrent hits gets one slot.
func TestConcurrentInsert(t *testing.T) {
	const counters = 1000
	tab := newTable(t, 64<<10)
	var passed [counters]atomic.Int32
	var arrived atomic.Int64
	together(func(int, *rand.Rand) {
		for n := range counters {
			meet(&arrived, n)
			if !decide(tab, min1, oneHit(counterID(n), perMinute(1))).Denied {
				passed[n].Add(1)
			}
		}
	})
	slots := map[uint64]int{}
	for i := range oneWord(tab).blocks {
		for j := range oneWord(tab).blocks[i] {
			slots[oneWord(tab).blocks[i][j].tag.Load()&^secondBit]++
		}
	}
	for n := range counters {
		if got := passed[n].Load(); got != 1 {
			t.Errorf("counter %d: %d hits were admitted, want 1", n, got)
		}
		if got := slots[tagOf(counterID(n), FixedWindow)]; got != 1 {
			t.Errorf("counter %d has %d slots, want 1", n, got)
		}
	}
}

// TestConcurrentReclaim reclaims slots of expired counters while their owners start a new window
// and late callers hit the old one: no window admits more than its limit, except counters that were
// evicted.
func TestConcurrentReclaim(t *testing.T) {
	const limit, steady, fresh, windows, spread = 3, 5, 5, 600, 8
	tab := newTable(t, MinBytes)
	ids := samePair(steady + fresh*windows)
	p := &Policy{Algorithm: FixedWindow, Limit: limit, Window: time.Second}
	// Indexed by window, counter, and number of windows by which the hit was late.
	var passed [windows + spread][steady + fresh][spread]atomic.Int32
	var clock, ops atomic.Int64
	together(func(_ int, r *rand.Rand) {
		for {
			if ops.Add(1)%50 == 0 {
				clock.Add(int64(sec))
			}
			now := clock.Load()
			w := int(now / int64(sec))
			if w >= windows {
				return
			}
			n := r.IntN(steady + fresh)
			id := ids[n]
			if n >= steady {
				id = ids[n+fresh*w]
			}
			if r.IntN(10) == 0 {
				runtime.Gosched()
			}
			d := decide(tab, Time(now), oneHit(id, p)).Decisions[0]
			late := int((now+int64(d.Reset))/int64(sec)) - 1 - w
			switch {
			case d.Over || late >= spread:
			case n < steady: // the same counter in all windows
				passed[w+late][n][0].Add(1)
			default:
				passed[w][n][late].Add(1)
			}
		}
	})
	s, extra := tab.Stats(), 0
	for w := range passed {
		for n := range passed[w] {
			for late := range passed[w][n] {
				extra += max(0, int(passed[w][n][late].Load())-limit)
			}
		}
	}
	if extra > limit*int(s.Evicted) {
		t.Errorf("%d hits were admitted beyond the limit with %+v", extra, s)
	}
	if s.Reclaimed < windows {
		t.Errorf("%+v, want more reclaimed slots", s)
	}
}

// TestConcurrentStrangers checks that counters that are hit once are charged at most once, however
// often slots are reused.
func TestConcurrentStrangers(t *testing.T) {
	const others = 20_000
	tab := newTable(t, MinBytes)
	ids, p := samePair(8+others), perMinute(1<<30)
	var next atomic.Int64
	together(func(w int, _ *rand.Rand) {
		for {
			if w%2 == 0 {
				decide(tab, min1, Charge{ID: ids[w], Policy: p, Hits: 1}, Charge{ID: ids[w], Policy: p, Hits: 1, Refund: true, Group: 1})
				decide(tab, min1, oneHit(ids[w], p))
				decide(tab, min1, Charge{ID: ids[w], Policy: p, Hits: 1, Refund: true})
				if next.Load() >= others {
					return
				}
				continue
			}
			n := next.Add(1) - 1
			if n >= others {
				return
			}
			if d := decide(tab, min1, oneHit(ids[8+n], p)).Decisions[0]; d.Before != 0 {
				t.Errorf("counter %d has used %d before its first hit", n, d.Before)
			}
			if d := decide(tab, min1, Charge{ID: ids[8+n], Policy: p}).Decisions[0]; d.Before > 1 {
				t.Errorf("counter %d has used %d after one hit", n, d.Before)
			}
		}
	})
}
