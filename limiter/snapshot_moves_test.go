package limiter

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// duringSave is a writer that calls a function before each write.
type duringSave struct {
	io.Writer
	do func()
}

func (w duringSave) Write(b []byte) (int, error) {
	w.do()
	return w.Writer.Write(b)
}

// A movingTable is a table with counters of all sizes, in the common partition and in one whose
// bound changes, and the number of their hits.
type movingTable struct {
	tab      *Table
	counters int
	policies [][]*Policy  // for each kind of counter, the variants of its policy
	variant  atomic.Int64 // current variant of all policies, modulo their number of variants
	own      atomic.Pointer[Partition]
	// requested and admitted count the hits of each counter, before and after they are charged.
	requested, admitted []atomic.Int64
}

func newMovingTable(t *testing.T, counters int) *movingTable {
	t.Helper()
	week, logs := 7*24*time.Hour, func(limit uint32) *Policy {
		return &Policy{Algorithm: SlidingLog, Limit: limit, Window: 7 * 24 * time.Hour}
	}
	policies := [][]*Policy{
		{{Algorithm: FixedWindow, Limit: 1e6, Window: week}},
		{{Algorithm: TokenBucket, Limit: 1e6, Window: 1e6 * 1e9, Burst: 1e6}},
		{{Algorithm: SlidingWindow, Limit: 1e6, Window: week, SubWindows: 10}},
		{{Algorithm: SlidingLog, Limit: 60, Window: week}},
		{logs(200), logs(300)}, // above the number of hits: a lower limit would drop the oldest
		{logs(200), logs(60), logs(100)},
	}
	return &movingTable{
		tab: newTable(t, 8<<20), counters: counters, policies: policies,
		requested: make([]atomic.Int64, 2*len(policies)*counters), admitted: make([]atomic.Int64, 2*len(policies)*counters),
	}
}

// hit charges the nth counter, or peeks at it.
func (b *movingTable) hit(tab *Table, own *Partition, n int, hits uint64) uint64 {
	variants := b.policies[n/2%len(b.policies)]
	batch := &Batch{Charges: []Charge{{ID: counterID(n), Policy: variants[int(b.variant.Load())%len(variants)], Hits: hits}}}
	if n%2 == 1 {
		batch.Partition = own
	}
	b.requested[n].Add(int64(hits))
	tab.Decide(min1, batch)
	b.admitted[n].Add(int64(batch.Decisions[0].Charged))
	return batch.Decisions[0].Before
}

// disturb makes one random change: it charges or moves a counter, grows or shrinks a size class, or
// changes the bound or the policies.
func (b *movingTable) disturb(t *testing.T, r *rand.Rand) {
	t.Helper()
	switch k := r.IntN(100); {
	case k == 0:
		b.variant.Add(1)
	case k == 1:
		b.setPartition(t, b.tab, 4000*(1+r.Int64N(2)))
	case k < 40:
		b.hit(b.tab, b.own.Load(), r.IntN(len(b.requested)), 1)
	default:
		var classes []*sizeClass
		for p := range b.tab.allPartitions() {
			for s := range p.sizeClasses() {
				classes = append(classes, s)
			}
		}
		s := classes[r.IntN(len(classes))]
		if k < 80 {
			s.moveToOther(b.tab, min1, r.Uint64N(s.inUse()*ways), 1)
			return
		}
		if k < 90 {
			b.tab.shrink(min1, s, false)
		} else if b.tab.takeMemory(s.blockSize()) {
			s.resizeMu.Lock()
			if s.inUse() >= uint64(len(s.blocks)) || !s.splitLocked() {
				b.tab.freeBytes.Add(s.blockSize())
			}
			s.resizeMu.Unlock()
		}
	}
}

// setPartition sets the bound of the partition.
func (b *movingTable) setPartition(t *testing.T, tab *Table, bound int64) *Partition {
	t.Helper()
	own, err := tab.Partitions(min1, map[string]int64{"own": bound})
	if err != nil {
		t.Error(err)
	}
	if tab == b.tab {
		b.own.Store(own["own"])
	}
	return own["own"]
}

// totals returns the current counts.
func totals(of []atomic.Int64) []uint64 {
	out := make([]uint64, len(of))
	for i := range of {
		out[i] = uint64(of[i].Load())
	}
	return out
}

// check compares a snapshot with the counts before and after it.
func (b *movingTable) check(t *testing.T, snapshot []byte, least, most []uint64) {
	t.Helper()
	tab := load(t, snapshot, b.tab.bytes)
	slots := int64(0)
	for p := range tab.allPartitions() {
		slots += p.live(min1)
	}
	own := b.setPartition(t, tab, 4000)
	used := int64(0)
	for n := range least {
		got := b.hit(tab, own, n, 0)
		if got < least[n] || got > most[n] {
			t.Fatalf("counter %d of policy %d has used %d in a snapshot, want %d to %d", n, n/2%len(b.policies), got, least[n], most[n])
		}
		if got > 0 {
			used++
		}
	}
	if slots != used {
		t.Fatalf("%d slots for %d counters", slots, used)
	}
}

// TestCountersMoveWhileTheyAreSaved checks that counters that move between the writes of a snapshot
// are in it exactly once.
func TestCountersMoveWhileTheyAreSaved(t *testing.T) {
	for seed := range uint64(effort.Times(t, 2)) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newMovingTable(t, 600)
		b.setPartition(t, b.tab, 4000)
		for n := range b.requested {
			b.hit(b.tab, b.own.Load(), n, 1+r.Uint64N(3))
			acquirePermit(b.tab, min1, counterID(len(b.requested)+n), atOnce(60)) // not saved
		}
		least := totals(b.admitted)
		var buf bytes.Buffer
		writes := 0
		if _, err := b.tab.Save(duringSave{&buf, func() {
			writes++
			for range 300 {
				b.disturb(t, r)
			}
		}}, min1); err != nil {
			t.Fatal(err)
		}
		if writes < 5 {
			t.Fatalf("%d writes", writes)
		}
		b.check(t, buf.Bytes(), least, totals(b.requested))
	}
}

// TestConcurrentSave checks the same for counters that are moved and charged concurrently.
func TestConcurrentSave(t *testing.T) {
	b := newMovingTable(t, 100)
	b.setPartition(t, b.tab, 4000)
	for n := range b.requested {
		b.hit(b.tab, b.own.Load(), n, 1)
	}
	together(func(w int, r *rand.Rand) {
		if w == 0 {
			for range 10 {
				least := totals(b.admitted)
				var buf bytes.Buffer
				if _, err := b.tab.Save(&buf, min1); err != nil {
					t.Error(err)
				}
				b.check(t, buf.Bytes(), least, totals(b.requested))
			}
			return
		}
		for range 5000 {
			b.disturb(t, r)
		}
	})
	if s := b.tab.Stats(); s.Evicted > 0 {
		t.Errorf("%+v, want none evicted", s)
	}
}
