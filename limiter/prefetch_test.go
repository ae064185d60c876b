package limiter

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestPrefetchDecidesNothing checks that a prefetch changes no decision for any batch: present and
// absent counters, sizes without memory, partitions, no charges.
func TestPrefetchDecidesNothing(t *testing.T) {
	with, without := newTable(t, 64<<10), newTable(t, 64<<10)
	var charges []Charge
	for i, p := range []Policy{
		{Algorithm: FixedWindow, Limit: 5, Window: time.Minute},
		{Algorithm: TokenBucket, Limit: 5, Window: time.Minute, Burst: 5},
		{Algorithm: SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 10},
		{Algorithm: SlidingLog, Limit: 5, Window: time.Minute},
		{Algorithm: SlidingLog, Limit: MaxLog, Window: time.Minute},
	} {
		charges = append(charges, Charge{ID: counterID(i), Policy: &p, Hits: 2, Group: int32(i / 2)})
	}
	own, other := reserve(t, with, "own", 100), reserve(t, without, "own", 100)
	for n := range 8 {
		now := benchNow + Time(n)*sec
		for size := range len(charges) + 1 {
			a, b := &Batch{Charges: charges[:size]}, &Batch{Charges: charges[:size]}
			if n%2 == 1 {
				a.Partition, b.Partition = own, other
			}
			with.Prefetch(a)
			with.Decide(now, a)
			without.Decide(now, b)
			if !slices.Equal(a.Decisions, b.Decisions) {
				t.Fatalf("second %d, %d charges: with a prefetch %+v, without %+v", n, size, a.Decisions, b.Decisions)
			}
		}
	}
}

// TestCountersAreInThePrefetchedLine checks that in a table that is half full nearly all counters
// are in the cache line that is prefetched: most in the preferred slot, few in the other block.
// This applies both to slots that were never used and to reclaimed slots.
func TestCountersAreInThePrefetchedLine(t *testing.T) {
	keys := min(100_000, effort.Times(t, 10_000))
	p := &Policy{Algorithm: FixedWindow, Limit: 1000, Window: time.Minute}
	p.Prepare()
	tab := newTable(t, int64(8*keys*16))
	for round := range 20 {
		now := benchNow + Time(round)*120*sec
		b := &Batch{Charges: []Charge{{Policy: p, Hits: 1}}}
		var slots, lines, others int
		h := identity.NewKey().Hasher()
		ids := make([]identity.ID, keys)
		for i := range ids {
			h := h
			h.AddWord(uint64(i))
			ids[i] = h.Sum()
			b.Charges[0].ID = ids[i]
			tab.Decide(now, b)
		}
		sc := oneWord(tab)
		for _, id := range ids {
			slot, index := sc.find(tagOf(id, p.Algorithm), id)
			if slot == nil {
				t.Fatalf("round %d: a counter is not in its blocks", round)
			}
			first, _ := sc.blockPair(id)
			switch preferred := first*ways + way(id); {
			case index == preferred:
				slots++
			case index/lineWays == preferred/lineWays:
				lines++
			case index/ways != first:
				others++
			}
		}
		share := func(n int) float64 { return float64(n) / float64(keys) }
		t.Logf("round %d: %.3f in the slot, %.3f in its line, %.3f in the other block", round, share(slots), share(lines), share(others))
		// Until the size class has grown, an unused slot in any position is preferred.
		if round == 19 && (share(slots) < 0.7 || share(slots+lines) < 0.9 || share(others) > 0.06) {
			t.Error("want at least 0.7 in the slot, at least 0.9 in the line, and at most 0.06 in the other block")
		}
	}
}

// BenchmarkPrefetch chooses one of a million counters, reads a clock and decides, with and without
// a preceding prefetch.
func BenchmarkPrefetch(b *testing.B) {
	const keys = 1_000_000
	p := perDay(1<<32 - 1)
	p.Prepare()
	t, ids, start := newTable(b, 32<<20), benchIDs(keys), time.Now()
	batch := &Batch{Charges: []Charge{{Policy: p, Hits: 1}}}
	for _, id := range ids {
		batch.Charges[0].ID = id
		t.Decide(benchNow, batch)
	}
	for _, op := range []struct {
		name     string
		prefetch bool
	}{{"without", false}, {"with", true}} {
		b.Run("op="+op.name, func(b *testing.B) {
			next := spread(keys)
			for b.Loop() {
				batch.Charges[0].ID = ids[next()]
				if op.prefetch {
					t.Prefetch(batch)
				}
				t.Decide(benchNow+Time(time.Since(start)), batch)
			}
		})
	}
}
