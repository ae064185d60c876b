package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// growPolicies returns policies with counters of all sizes that are small enough for tests.
func growPolicies() []*Policy {
	return []*Policy{
		{Algorithm: FixedWindow, Limit: 100, Window: time.Hour},
		{Algorithm: TokenBucket, Limit: 100, Window: time.Hour, Burst: 100},
		{Algorithm: SlidingWindow, Limit: 100, Window: time.Hour, SubWindows: 10},
		{Algorithm: SlidingLog, Limit: 8, Window: time.Hour},
		{Algorithm: SlidingLog, Limit: 100, Window: time.Hour},
	}
}

// TestCountersStayWhileTheirClassGrowsAndShrinks checks that splits, merges and moves do not change
// counters.
func TestCountersStayWhileTheirClassGrowsAndShrinks(t *testing.T) {
	const counters = 40
	for _, p := range growPolicies() {
		t.Run(fmt.Sprintf("%d/%d", p.Algorithm, p.Limit), func(t *testing.T) {
			tab := newTable(t, 256<<10)
			r := rand.New(rand.NewPCG(1, 2))
			var used [counters]uint64
			class := tab.common.class(p)
			splits, merges, moves := 0, 0, 0
			for range 4000 {
				n := r.IntN(counters)
				switch r.IntN(4) {
				case 0:
					if used[n] < 7 {
						decide(tab, min1, oneHit(counterID(n), p))
						used[n]++
					}
				case 1:
					if class.inUse() < 36 {
						class.splitLocked()
						splits++
					}
				case 2:
					if class.mergeLocked(tab, min1, false) {
						merges++
					}
				case 3:
					if class.moveToOther(tab, min1, r.Uint64N(class.inUse()*ways), 1) {
						moves++
					}
				}
				if got := decide(tab, min1, Charge{ID: counterID(n), Policy: p}).Decisions[0].Before; got != used[n] {
					t.Fatalf("counter %d has used %d, want %d", n, got, used[n])
				}
			}
			for n := range counters {
				if got := decide(tab, min1, Charge{ID: counterID(n), Policy: p}).Decisions[0].Before; got != used[n] {
					t.Errorf("counter %d has used %d, want %d", n, got, used[n])
				}
			}
			if s := tab.Stats(); s.Evicted > 0 {
				t.Errorf("%+v, want none evicted", s)
			}
			if splits < 100 || merges < 100 || moves < 100 {
				t.Errorf("%d splits, %d merges, %d moves, want at least a hundred of each", splits, merges, moves)
			}
		})
	}
}

// TestConcurrentMoves charges counters while other goroutines split, merge and move blocks: each
// counter admits exactly its limit.
func TestConcurrentMoves(t *testing.T) {
	const counters, rounds = 60, 3000
	for _, p := range growPolicies() {
		t.Run(fmt.Sprintf("%d/%d", p.Algorithm, p.Limit), func(t *testing.T) {
			tab := newTable(t, 1<<20)
			class := tab.common.class(p)
			var admitted [counters]atomic.Int64
			together(func(w int, r *rand.Rand) {
				for range rounds {
					if w > 1 {
						n := r.IntN(counters)
						if !decide(tab, min1, oneHit(counterID(n), p)).Denied {
							admitted[n].Add(1)
						}
						continue
					}
					if r.IntN(2) == 0 {
						class.moveToOther(tab, min1, r.Uint64N(class.inUse()*ways), 1)
						continue
					}
					class.resizeMu.Lock()
					if up := r.IntN(2) == 0; up && class.inUse() < 40 {
						class.splitLocked()
					} else if !up && class.inUse() > 24 {
						class.mergeLocked(tab, min1, false)
					}
					class.resizeMu.Unlock()
				}
			})
			for n := range counters {
				got := decide(tab, min1, Charge{ID: counterID(n), Policy: p}).Decisions[0].Before
				if want := uint64(admitted[n].Load()); got != want || want > uint64(p.Limit) {
					t.Errorf("counter %d has used %d, want the %d that were admitted, at most %d", n, got, want, p.Limit)
				}
			}
			if s := tab.Stats(); s.Evicted > 0 {
				t.Errorf("%+v, want none evicted", s)
			}
		})
	}
}

// TestLargeTableBeginsSmall checks the initial memory of a size class in a large table, since a few
// counters touch all of it.
func TestLargeTableBeginsSmall(t *testing.T) {
	tab := newTable(t, 1<<30)
	decide(tab, 0, oneHit(counterID(1), perMinute(1)))
	if used := tab.Stats().Used; used != 4<<20 {
		t.Errorf("one counter uses %d bytes, want 4 MiB", used)
	}
}

// TestMemoryIsUsedBeforeEvictions checks that four fifths of the memory contain live counters
// before the first eviction, for any mix and order of counter sizes.
func TestMemoryIsUsedBeforeEvictions(t *testing.T) {
	size := min(2<<20, effort.Times(t, 1<<18))
	policies := growPolicies()
	for name, shares := range map[string][]int{ // percentage of counters of each policy
		"one word":                              {100, 0, 0, 0, 0},
		"windows and a special case":            {1, 0, 99, 0, 0},
		"special cases and a window":            {99, 0, 1, 0, 0},
		"half and half":                         {25, 25, 25, 25, 0},
		"all":                                   {20, 20, 20, 20, 20},
		"large counters among many of one word": {0, 99, 0, 0, 1},
	} {
		for _, ordered := range []bool{false, true} {
			tab := newTable(t, int64(size))
			var classes []int
			for i, share := range shares {
				for range share {
					classes = append(classes, i)
				}
			}
			bytes, n := 0, 0
			hit := func(p *Policy) {
				decide(tab, min1, oneHit(counterID(n), p))
				bytes += CounterBytes(*p)
				n++
			}
			if ordered { // first the rare counters fill half of the table
				for i, share := range slices.Backward(shares) {
					for half := bytes + size/2/len(shares); share > 0 && bytes < half; {
						hit(policies[i])
					}
				}
			}
			for r := rand.New(rand.NewPCG(3, 4)); tab.Stats().Evicted == 0; {
				hit(policies[classes[r.IntN(len(classes))]])
			}
			worst := 0.0
			for _, c := range tab.Classes(min1) {
				worst = max(worst, float64(c.Live)/float64(c.Capacity))
			}
			t.Logf("%s, ordered %v: %.3f of the memory had live counters at the first eviction, the fullest class %.3f", name, ordered, float64(bytes)/float64(size), worst)
			if bytes < size*8/10 || worst < 0.75 {
				t.Errorf("%s, ordered %v: want at least 0.8, and 0.75 of the fullest class", name, ordered)
			}
		}
	}
}

// TestUnusedClassesGiveMemoryBack checks that the memory of expired counters is available to other
// counter sizes and to the system.
func TestUnusedClassesGiveMemoryBack(t *testing.T) {
	bytes := min(8<<20, effort.Times(t, 1<<20))
	policies := growPolicies()
	tab := newTable(t, int64(bytes))
	fill := func(now Time, p *Policy, from int) (live int64) {
		before := tab.Stats().Evicted
		n := bytes * 8 / 10 / CounterBytes(*p)
		for i := range n {
			decide(tab, now, oneHit(counterID(from+i), p))
		}
		if lost := tab.Stats().Evicted - before; lost > 0 {
			t.Errorf("%d counters of %d bytes were evicted of %d", lost, CounterBytes(*p), n)
		}
		return int64(n)
	}
	now := min1
	for round := range 3 {
		for i, p := range policies {
			now += 3 * Time(time.Hour)
			if want, got := fill(now, p, round<<27+i<<24), tab.Live(now); got != want {
				t.Errorf("%d counters are live, want %d", got, want)
			}
			if s := tab.Stats(); s.Used > int64(bytes)+1<<20 {
				t.Errorf("%+v exceeds the memory bound", s)
			}
		}
	}
}

// TestAFloodLeavesRoomForOtherSizes checks that counters of another size get memory of the size
// class of a flood.
func TestAFloodLeavesRoomForOtherSizes(t *testing.T) {
	bytes := min(1<<20, effort.Times(t, 1<<17))
	policies := growPolicies()
	for _, flooded := range policies {
		for _, late := range policies {
			if flooded.class() == late.class() {
				continue
			}
			tab := newTable(t, int64(bytes))
			for i := range 2 * bytes / CounterBytes(*flooded) {
				decide(tab, min1, oneHit(counterID(i), flooded))
			}
			n := bytes / 3 / CounterBytes(*late)
			for i := range n {
				decide(tab, min1, oneHit(counterID(1<<28+i), late))
				decide(tab, min1, oneHit(counterID(2<<28+i), flooded))
			}
			lost := 0
			for i := range n {
				if decide(tab, min1, Charge{ID: counterID(1<<28 + i), Policy: late}).Decisions[0].Before == 0 {
					lost++
				}
			}
			if lost > n/100 {
				t.Errorf("a flood of %d bytes each: %d of %d counters of %d bytes were lost", CounterBytes(*flooded), lost, n, CounterBytes(*late))
			}
		}
	}
}

// TestClasses checks the totals of size classes.
func TestClasses(t *testing.T) {
	tab := newTable(t, 1<<20)
	own := reserve(t, tab, "own", 100)
	policies := growPolicies()
	for i := range 10 {
		decide(tab, min1, oneHit(counterID(i), policies[2]))
		tab.Decide(min1, &Batch{Charges: []Charge{oneHit(counterID(i), policies[0])}, Partition: own})
	}
	free := int64(1<<20 - 10*72 - 10*16)
	want := []ClassStats{
		{CounterBytes: 16, Capacity: free / 16},
		{CounterBytes: 72, Live: 10, Capacity: 10 + free/72},
		{Partition: "own", CounterBytes: 16, Live: 10, Capacity: 100},
	}
	if got := tab.Classes(min1); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Classes() = %+v, want %+v", got, want)
	}
}

// TestCountersOfOneSize measures how much of the default memory one counter size can use before the
// first eviction. docs/sizing.md contains the output.
func TestCountersOfOneSize(t *testing.T) {
	for _, p := range []*Policy{
		perMinute(5),
		{Algorithm: SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 1},
		ringOfTen(5),
		{Algorithm: SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 60},
		logOf(5), logOf(10), logOf(100), logOf(MaxLog),
	} {
		size := min(defaultBytes, effort.Times(t, defaultBytes/10))
		tab := newTable(t, int64(size))
		slots := size / CounterBytes(*p)
		b := &Batch{Charges: []Charge{{Policy: p, Hits: 1}}}
		step := 1 + slots/10_000 // a check after each counter would take too long
		live, n := 0, 0
		for ; tab.Stats().Evicted == 0; live = n - step {
			for range step {
				b.Charges[0].ID = counterID(n)
				tab.Decide(min1, b)
				n++
			}
		}
		t.Logf("%5d bytes: %7d of %7d live before the first eviction, %.3f", CounterBytes(*p), live, slots, float64(live)/float64(slots))
		if live < slots*88/100 {
			t.Errorf("%d bytes: %d of %d live before the first eviction, want 0.88", CounterBytes(*p), live, slots)
		}
		worst := 0.0
		for _, c := range tab.Classes(min1) {
			worst = max(worst, float64(c.Live)/float64(c.Capacity))
		}
		if worst < 0.8 {
			t.Errorf("%d bytes: the fullest class is %.2f full when counters are evicted", CounterBytes(*p), worst)
		}
	}
}

// TestClearedSlotHasAnotherWord checks that a slot from which a counter moved away never gets the
// same word again: a charge that stalled meanwhile would hit the wrong counter.
func TestClearedSlotHasAnotherWord(t *testing.T) {
	for _, size := range []int{0, 5} {
		class := newSizeClass(size, 2, 2)
		const index, payload = 3, 7
		class.fillSlot(index, 0, 1<<kindBits|2, payload)
		seen := class.slotAt(index).word.Load()
		word, ok := class.freezeLocked(index)
		if !ok {
			t.Fatal("a counter without a writer cannot be frozen")
		}
		class.clearSlot(index, word)
		class.fillSlot(index, class.slotAt(index).word.Load(), 2<<kindBits|2, payload)
		if got := class.slotAt(index).word.Load(); got == seen {
			t.Errorf("%d cells: the next owner's word is %#x again", size, got)
		}
	}
}
