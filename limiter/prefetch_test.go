package limiter

import (
	"slices"
	"testing"
	"time"
)

// A prefetch changes no decision, whatever the batch names: counters that are there,
// that are not, sizes for which there is no memory, spaces, none.
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
	space := func(tab *Table) *Space {
		s, err := tab.Space("own", 100)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own, other := space(with), space(without)
	for n := range 8 {
		now := benchNow + Time(n)*sec
		for size := range len(charges) + 1 {
			a, b := &Batch{Charges: charges[:size]}, &Batch{Charges: charges[:size]}
			if n%2 == 1 {
				a.Space, b.Space = own, other
			}
			with.Prefetch(a)
			with.Decide(now, a)
			without.Decide(now, b)
			if !slices.Equal(a.Decisions, b.Decisions) {
				t.Fatalf("second %d, %d charges: %+v, without a prefetch %+v", n, size, a.Decisions, b.Decisions)
			}
		}
	}
}

// BenchmarkPrefetch reads a clock between naming one of a million counters and
// deciding, as who has no time yet must, and asks for its memory before or does not.
func BenchmarkPrefetch(b *testing.B) {
	const keys = 1_000_000
	p := perDay(1<<32 - 1)
	p.Prepare()
	t, ids, clock := newTable(b, 32<<20), benchIDs(keys), NewClock()
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
				now, _ := clock.Now()
				t.Decide(now, batch)
			}
		})
	}
}
