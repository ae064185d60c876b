package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const benchNow = limiter.Time(1_700_000_000_123_456_789)

func benchIDs(n int) []limiter.ID {
	key := limiter.HashKey{1, 2, 3}
	ids := make([]limiter.ID, n)
	for i := range ids {
		h := key.Hasher()
		h.Word(uint64(i))
		ids[i] = h.Sum()
	}
	return ids
}

func newTable(tb testing.TB, bytes int64) *limiter.Table {
	tb.Helper()
	t, err := limiter.New(limiter.Options{Bytes: bytes})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func BenchmarkDecide(b *testing.B) {
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1<<32 - 1, Window: 24 * time.Hour}
	for _, n := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("op=allow/keys=%d", n), func(b *testing.B) {
			t, ids := newTable(b, 0), benchIDs(n)
			batch := &limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: 1}}}
			for _, id := range ids {
				batch.Charges[0].ID = id
				t.Decide(benchNow, batch)
			}
			b.ReportAllocs()
			i := uint32(0)
			for b.Loop() {
				i = i*1664525 + 1013904223
				batch.Charges[0].ID = ids[uint64(i)*uint64(n)>>32]
				t.Decide(benchNow, batch)
			}
		})
	}
}
