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

// together runs f on all workers at once.
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

// Of many hits exactly as many pass as the limit says, also while strangers want
// the slot.
func TestConcurrentTotal(t *testing.T) {
	const limit, tries, strangers = 5000, 2000, 10_000
	for _, storm := range []bool{false, true} {
		tab := newTable(t, minBytes)
		ids, p := samePair(1+strangers), perMinute(limit)
		for range 10 {
			decide(tab, min1, take(ids[0], p))
		}
		var passed atomic.Int64
		together(func(w int, r *rand.Rand) {
			b := &Batch{Charges: make([]Charge, 1)}
			for range tries {
				b.Charges[0] = take(ids[0], p)
				if tab.Decide(min1, b); !b.Refused {
					passed.Add(1)
				}
				if storm && w%2 == 0 {
					b.Charges[0] = take(ids[1+r.IntN(strangers)], p)
					tab.Decide(min1, b)
				}
			}
		})
		if got, want := passed.Load(), int64(limit-10); got != want {
			t.Errorf("storm %v: %d passed, want %d", storm, got, want)
		}
		if s := tab.Stats(); (s.GivenUp > 0) != storm {
			t.Errorf("storm %v: %+v", storm, s)
		}
	}
}

// Groups that want the same counters in all orders: what is admitted never
// exceeds a limit, and what is refused leaves nothing.
func TestConcurrentGroups(t *testing.T) {
	tab := newTable(t, minBytes)
	limits := []uint32{3000, 2000, 2500}
	var admitted [3]atomic.Int64 // hits a counter, by groups that passed
	group := func(r *rand.Rand) []Charge {
		var c []Charge
		for _, n := range r.Perm(3)[:2+r.IntN(2)] {
			c = append(c, Charge{ID: counterID(n), Policy: perMinute(limits[n]), Hits: uint64(1 + r.IntN(2))})
		}
		if r.IntN(4) == 0 { // a counter twice
			c = append(c, c[0])
		}
		return c
	}
	together(func(_ int, r *rand.Rand) {
		for range 1000 {
			b := decide(tab, min1, group(r)...)
			for i, c := range b.Charges {
				d := b.Decisions[i]
				if b.Refused != d.Refused || d.Refused == (d.Charged > 0) {
					t.Errorf("Refused = %v, decision %+v", b.Refused, d)
				}
				for n := range limits {
					if c.ID == counterID(n) {
						admitted[n].Add(int64(d.Charged))
					}
				}
			}
			runtime.Gosched()
		}
	})
	full := false
	for n, limit := range limits {
		got := decide(tab, min1, Charge{ID: counterID(n), Policy: perMinute(limit)}).Decisions[0].Before
		if want := uint64(admitted[n].Load()); got != want || got > uint64(limit) {
			t.Errorf("counter %d: used %d, want the %d that were admitted, at most %d", n, got, want, limit)
		}
		full = full || got+2 >= uint64(limit)
	}
	if !full {
		t.Error("no counter is full: nothing was refused")
	}
}

// A request of quota members in groups that passes has charged one of them.
func TestConcurrentQuota(t *testing.T) {
	const room = 500
	tab := newTable(t, minBytes)
	var passed atomic.Int64
	together(func(int, *rand.Rand) {
		for range 200 {
			b := decide(tab, min1,
				Charge{ID: counterID(1), Policy: perMinute(1 << 20), Hits: 1},
				Charge{ID: counterID(2), Policy: perMinute(room / 2), Hits: 1, Mode: Quota},
				Charge{ID: counterID(3), Policy: perMinute(room / 2), Hits: 1, Mode: Quota, Group: 1},
			)
			if !b.Refused {
				passed.Add(1)
				if b.Decisions[1].Charged+b.Decisions[2].Charged == 0 {
					t.Errorf("passed without quota: %+v", b.Decisions)
				}
			}
		}
	})
	b := decide(tab, min1, Charge{ID: counterID(1), Policy: perMinute(1)})
	if got, want := b.Decisions[0].Before, uint64(passed.Load()); got != want || got > room || got < room/2 {
		t.Errorf("used %d, want the %d that passed, %d to %d", got, want, room/2, room)
	}
}

// A new counter that many hit at once gets one slot.
func TestConcurrentInsert(t *testing.T) {
	const counters = 1000
	tab := newTable(t, 64<<10)
	var passed [counters]atomic.Int32
	var arrived [counters]atomic.Int32
	together(func(int, *rand.Rand) {
		for n := range counters {
			for arrived[n].Add(1); arrived[n].Load() < workers; {
				runtime.Gosched()
			}
			if !decide(tab, min1, take(counterID(n), perMinute(1))).Refused {
				passed[n].Add(1)
			}
		}
	})
	slots := map[uint64]int{}
	for i := range tab.buckets {
		for j := range tab.buckets[i] {
			slots[tab.buckets[i][j].tag.Load()]++
		}
	}
	for n := range counters {
		if got := passed[n].Load(); got != 1 {
			t.Errorf("counter %d: %d passed, want 1", n, got)
		}
		if got := slots[tagOf(counterID(n), FixedWindow)]; got != 1 {
			t.Errorf("counter %d has %d slots, want 1", n, got)
		}
	}
}

// Slots of expired counters change hands while late callers still hit them: no
// window admits more than its limit, but for counters that were given up.
func TestConcurrentReclaim(t *testing.T) {
	const limit, perWindow, windows, spread = 3, 7, 400, 8
	tab := newTable(t, minBytes)
	ids := samePair(perWindow * windows)
	p := &Policy{Algorithm: FixedWindow, Limit: limit, Window: time.Second}
	// By counter, and by how many windows late it was counted.
	var passed [perWindow * windows][spread]atomic.Int32
	var clock, ops atomic.Int64
	together(func(_ int, r *rand.Rand) {
		for {
			if ops.Add(1)%100 == 0 {
				clock.Add(int64(sec))
			}
			now := clock.Load()
			w := int(now / int64(sec))
			if w >= windows {
				return
			}
			n := w*perWindow + r.IntN(perWindow)
			if r.IntN(10) == 0 {
				runtime.Gosched()
			}
			d := decide(tab, Time(now), take(ids[n], p)).Decisions[0]
			if late := int((now+int64(d.Reset))/int64(sec)) - 1 - w; !d.Over && late < spread {
				passed[n][late].Add(1)
			}
		}
	})
	s, extra := tab.Stats(), 0
	for n := range passed {
		for late := range passed[n] {
			extra += max(0, int(passed[n][late].Load())-limit)
		}
	}
	if extra > limit*int(s.GivenUp) {
		t.Errorf("%d passed beyond the limit with %+v", extra, s)
	}
	if s.Reclaimed < windows {
		t.Errorf("%+v, want more reclaimed", s)
	}
}

// Strangers that are hit once and never again are charged at most once, however
// often slots change hands under those who hit others.
func TestConcurrentStrangers(t *testing.T) {
	const strangers = 20_000
	tab := newTable(t, minBytes)
	ids, p := samePair(8+strangers), perMinute(1<<30)
	var next atomic.Int64
	together(func(w int, _ *rand.Rand) {
		for {
			if w%2 == 0 {
				decide(tab, min1, Charge{ID: ids[w], Policy: p, Hits: 1}, Charge{ID: ids[w], Policy: p, Hits: 1, Refund: true, Group: 1})
				decide(tab, min1, take(ids[w], p))
				decide(tab, min1, Charge{ID: ids[w], Policy: p, Hits: 1, Refund: true})
				if next.Load() >= strangers {
					return
				}
				continue
			}
			n := next.Add(1) - 1
			if n >= strangers {
				return
			}
			if d := decide(tab, min1, take(ids[8+n], p)).Decisions[0]; d.Before != 0 {
				t.Errorf("stranger %d has used %d before its first hit", n, d.Before)
			}
			if d := decide(tab, min1, Charge{ID: ids[8+n], Policy: p}).Decisions[0]; d.Before > 1 {
				t.Errorf("stranger %d has used %d after one hit", n, d.Before)
			}
		}
	})
}
