package limiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

func oneHit(id identity.ID, p *Policy) Charge { return Charge{ID: id, Policy: p, Hits: 1} }

func perMinute(limit uint32) *Policy {
	return &Policy{Algorithm: FixedWindow, Limit: limit, Window: time.Minute}
}

func TestNew(t *testing.T) {
	for _, size := range []int64{-1, 1, MinBytes - 1, MaxBytes + 1} {
		if _, err := New(Options{Bytes: size}); err == nil {
			t.Errorf("New(%d bytes) returns no error", size)
		}
	}
	for bytes, want := range map[int64]int64{0: 64 << 20, MinBytes: MinBytes, 5000: 5000} {
		tab := newTable(t, bytes)
		if s := tab.Stats(); s.Bytes != want || s.Used != 0 {
			t.Errorf("New(%d bytes): %+v, want %d bytes and none used", bytes, s, want)
		}
	}
}

// TestPair checks that the two blocks of a counter differ and are in use, for any number of blocks.
func TestPair(t *testing.T) {
	for _, start := range []uint64{2, 16} {
		sc := newSizeClass(0, start, 100)
		for sc.inUse() < 100 {
			for n := range 200 {
				if first, second := sc.blockPair(counterID(n)); first == second || max(first, second) >= sc.inUse() {
					t.Errorf("pair of counter %d in %d blocks = %d, %d", n, sc.inUse(), first, second)
				}
			}
			sc.splitLocked()
		}
	}
}

// TestReclaim checks that slots of expired counters are reused and no live counter is lost.
func TestReclaim(t *testing.T) {
	tab := newTable(t, MinBytes)
	p := perMinute(5)
	now := min1
	for n := range 10_000 { // 40 times the capacity, 64 of them live
		if n%64 == 0 {
			now += min1
		}
		if d := decide(tab, now, oneHit(counterID(n), p)).Decisions[0]; d.Before != 0 {
			t.Fatalf("counter %d has used %d before its first hit", n, d.Before)
		}
		if d := decide(tab, now, oneHit(counterID(n), p)).Decisions[0]; d.Before != 1 {
			t.Fatalf("counter %d has used %d before its second hit, want 1", n, d.Before)
		}
	}
	s := tab.Stats()
	if s.Evicted != 0 || s.Reclaimed == 0 {
		t.Errorf("%+v, want none evicted and some reclaimed", s)
	}
	if got := tab.Live(now); got != 10_000%64 {
		t.Errorf("Live = %d, want %d", got, 10_000%64)
	}
	if got := tab.Live(now + min1); got != 0 {
		t.Errorf("Live a minute later = %d, want 0", got)
	}
}

// TestSizeChangesNothing checks that the size of the table does not affect decisions, as long
// as the live counters fit and callers are not late.
func TestSizeChangesNothing(t *testing.T) {
	second := func(p Policy) *Policy { p.Window = time.Second; return &p }
	policies := []*Policy{
		second(Policy{Algorithm: FixedWindow, Limit: 3}),
		{Algorithm: FixedWindow, Limit: 3, Window: 2 * time.Second, CountRefused: true},
		{Algorithm: FixedWindow, Limit: 9, Window: 5 * time.Second},
		second(Policy{Algorithm: SlidingWindow, Limit: 3, SubWindows: 10}),
		second(Policy{Algorithm: SlidingWindow, Limit: 3, SubWindows: 7, CountRefused: true}),
		second(Policy{Algorithm: SlidingLog, Limit: 3}),
		second(Policy{Algorithm: SlidingLog, Limit: 7}),
		second(Policy{Algorithm: TokenBucket, Limit: 3, Burst: 4}),
		second(Policy{Algorithm: LeakyBucket, Limit: 3, Slack: 1, MaxWait: time.Second, MaxWaiting: 2, CountRefused: true}),
	}
	tiny := newTable(t, 256<<10)
	huge := newTable(t, 32<<20)
	r := rand.New(rand.NewPCG(1, 2))
	now := Time(1_700_000_000) * sec
	var a, b Batch
	steps := effort.Times(t, 50_000)
	for step := range steps {
		now += Time(r.IntN(20)) * Time(time.Millisecond)
		a.Reset()
		b.Reset()
		a.Budget = time.Duration(r.IntN(2)) * time.Second
		b.Budget = a.Budget
		for range 1 + r.IntN(2) {
			// A hundred values per policy, different ones every ten seconds.
			n := int(now/(10*sec))*1000 + r.IntN(100)
			i := r.IntN(len(policies))
			a.Charges = append(a.Charges, Charge{
				ID: counterID(n*10 + i), Policy: policies[i], Hits: uint64(r.IntN(3)), Refund: r.IntN(10) == 0,
			})
		}
		b.Charges = append(b.Charges, a.Charges...)
		tiny.Decide(now, &a)
		huge.Decide(now, &b)
		for i := range a.Decisions {
			if a.Decisions[i] != b.Decisions[i] {
				t.Fatalf("step %d: tiny table %+v, huge %+v", step, a.Decisions[i], b.Decisions[i])
			}
		}
	}
	if s := tiny.Stats(); s.Evicted != 0 || s.Reclaimed < uint64(steps)/20 {
		t.Errorf("tiny table %+v, want none evicted and many reclaimed", s)
	}
}

// samePair returns n counters with the same two blocks.
func samePair(n int) []identity.ID {
	var ids []identity.ID
	for i := uint64(0); len(ids) < n; i++ {
		ids = append(ids, identity.ID{Hi: (i + 1) << 40, Lo: 0})
	}
	return ids
}

func TestEvictionOrder(t *testing.T) {
	const slots = 2 * ways
	tests := []struct {
		name string
		hits func(i int) int
		p    func(i int) *Policy
		lost int
	}{
		{
			name: "smallest count",
			hits: func(i int) int { return 20 - i%13 },
			p:    func(int) *Policy { return perMinute(99) },
			lost: 12,
		},
		{
			name: "of equal counters the one that expires first",
			hits: func(int) int { return 2 },
			p: func(i int) *Policy {
				return &Policy{Algorithm: FixedWindow, Limit: 99, Window: time.Duration(30-(i*5)%slots) * time.Minute}
			},
			lost: 3, // 15 minutes
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab := newTable(t, MinBytes)
			ids := samePair(slots + 1)
			for i, id := range ids[:slots] {
				for range tt.hits(i) {
					decide(tab, 0, oneHit(id, tt.p(i)))
				}
			}
			if s := tab.Stats(); s.Evicted != 0 || tab.Live(0) != slots {
				t.Fatalf("before the eviction: %+v, %d live, want none evicted and %d live", s, tab.Live(0), slots)
			}
			decide(tab, 0, oneHit(ids[slots], perMinute(99)))
			if s := tab.Stats(); s.Evicted != 1 || s.Reclaimed != 0 || tab.Live(0) != slots {
				t.Errorf("after the eviction: %+v, %d live, want 1 evicted and %d live", s, tab.Live(0), slots)
			}
			for i, id := range ids[:slots] {
				want := uint64(tt.hits(i))
				if i == tt.lost {
					want = 0
				}
				if got := decide(tab, 0, Charge{ID: id, Policy: tt.p(i)}).Decisions[0].Before; got != want {
					t.Errorf("counter %d has used %d, want %d", i, got, want)
				}
			}
		})
	}
}

// TestFlood checks that a flood of new values evicts its own counters, with any algorithm.
func TestFlood(t *testing.T) {
	const established = 1000
	flood := min(200_000, effort.Times(t, 20_000))
	policies := []*Policy{
		perMinute(100),
		{Algorithm: TokenBucket, Limit: 100, Window: time.Minute, Burst: 100},
		ringOfTen(100),
		logOf(10),
	}
	for _, steady := range policies {
		for _, flooding := range policies {
			if steady.class() != flooding.class() || steady.algorithm().hasWeight() != flooding.algorithm().hasWeight() {
				continue // other pairs do not share blocks, or evict their own kind except the first of a block
			}
			size := int64(4096 * CounterBytes(*steady))
			tab := newTable(t, size)
			for n := range established {
				for range 3 {
					decide(tab, min1, oneHit(counterID(n), steady))
				}
			}
			for n := range flood {
				decide(tab, min1, oneHit(counterID(established+n), flooding))
			}
			lost := 0
			for n := range established {
				if got := decide(tab, min1, Charge{ID: counterID(n), Policy: steady}).Decisions[0].Before; got != 3 {
					lost++
				}
			}
			if lost > 0 {
				t.Errorf("algorithm %d flooded by %d: %d of %d counters were lost", steady.Algorithm, flooding.Algorithm, lost, established)
			}
			if s := tab.Stats(); s.Evicted < uint64(flood)-4096 {
				t.Errorf("%+v, want most of the flood evicted", s)
			}
		}
	}
}

// TestEmptyCounterIsReclaimed checks that a fully refunded counter is reclaimed like an absent one.
func TestEmptyCounterIsReclaimed(t *testing.T) {
	tab := newTable(t, MinBytes)
	ids := samePair(2*ways + 1)
	p := perMinute(9)
	for _, id := range ids[:2*ways] {
		decide(tab, 0, oneHit(id, p))
	}
	decide(tab, 0, Charge{ID: ids[5], Policy: p, Hits: 1, Refund: true})
	if got := tab.Live(0); got != 2*ways-1 {
		t.Errorf("Live = %d, want %d", got, 2*ways-1)
	}
	decide(tab, 0, oneHit(ids[2*ways], p))
	if s := tab.Stats(); s.Evicted != 0 || s.Reclaimed != 1 {
		t.Errorf("%+v, want 1 reclaimed and none evicted", s)
	}
}

// TestLateAfterReclaim checks that a late caller does not find the window of a reclaimed counter
// empty.
func TestLateAfterReclaim(t *testing.T) {
	tab := newTable(t, MinBytes)
	ids := samePair(2*ways + 1)
	p := perMinute(1)
	for _, id := range ids[:2*ways] {
		decide(tab, 2*min1-1, oneHit(id, p))
	}
	decide(tab, 2*min1, oneHit(ids[2*ways], p)) // reuses the slot of one counter
	for i, id := range ids[:2*ways] {
		d := decide(tab, 2*min1-1, oneHit(id, p)).Decisions[0]
		if late := d.Reset > 1; d.Over == late {
			t.Errorf("counter %d: decision %+v, want Over, or a hit in the next window", i, d)
		}
	}
	// Hours late means that the clock was set back.
	d := decide(tab, min1-2*3600*sec, oneHit(counterID(1), p)).Decisions[0]
	if d.Reset > time.Minute {
		t.Errorf("after the clock was set back: decision %+v, want the current window", d)
	}
}

// TestStalledCharge checks that a charge that stalled while its slot was given to another counter,
// with the same count in the same window, does not hit that counter.
func TestStalledCharge(t *testing.T) {
	tab := newTable(t, MinBytes)
	ids := samePair(2*ways + 1)
	p := perMinute(9)
	for _, id := range ids[:2*ways] {
		decide(tab, 0, oneHit(id, p))
	}
	var seen [2 * ways]view
	for i, id := range ids[:2*ways] {
		(&Batch{table: tab, Charges: []Charge{{ID: id, Policy: p}}}).read(0, 0, &seen[i])
	}
	decide(tab, 0, oneHit(ids[2*ways], p))
	failed := 0
	for i, id := range ids[:2*ways] {
		after := seen[i].state
		after.used++
		if !(&Batch{table: tab, Charges: []Charge{{ID: id, Policy: p}}}).write(0, 0, &seen[i], after) {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d charges failed, want only the one on the reused slot", failed)
	}
	if got := decide(tab, 0, Charge{ID: ids[2*ways], Policy: p}).Decisions[0].Before; got != 1 {
		t.Errorf("the new owner has used %d, want 1", got)
	}
}

// TestTags checks that the slots of one ID under different algorithms, and their words, are
// distinct.
func TestTags(t *testing.T) {
	id := identity.ID{Hi: ^uint64(0)}
	for a := Algorithm(1); a < 8; a++ {
		tag := tagOf(id, a)
		if got := Algorithm(tag >> 1 & 7); got != a {
			t.Errorf("the tag of algorithm %d has the algorithm %d", a, got)
		}
		if tagOf(identity.ID{}, a) == 0 {
			t.Errorf("tagOf(ID{}, %d) = 0, the tag of an empty slot", a)
		}
		if tag>>kindBits != id.Hi>>kindBits {
			t.Errorf("tagOf(%d) = %#x loses bits of the ID", a, tag)
		}
	}
}

// TestLiveOfALargeTable checks that few counters in a large table are counted exactly, and many by
// a sample.
func TestLiveOfALargeTable(t *testing.T) {
	table := newTable(t, 64<<20)
	b := &Batch{}
	p := &Policy{Algorithm: FixedWindow, Limit: 10, Window: time.Hour}
	key := identity.Key{}.Hasher()
	for i := range uint64(400_000) {
		b.Reset()
		h := key
		h.AddWord(i)
		b.Charges = append(b.Charges, Charge{ID: h.Sum(), Policy: p, Hits: 1})
		table.Decide(0, b)
		switch want := int64(i) + 1; want {
		case 1, 7, 200_000:
			if got := table.Live(1); got != want {
				t.Errorf("Live() = %d, want %d", got, want)
			}
		case 400_000:
			if got := table.Live(1); got < want*95/100 || got > want*105/100 {
				t.Errorf("Live() = %d, want %d within 5%%", got, want)
			}
		}
	}
}
