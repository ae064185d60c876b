package limiter

import (
	"fmt"
	"testing"
	"time"
)

const benchNow = Time(1_700_000_000_123_456_789)

func benchIDs(n int) []ID {
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = counterID(i)
	}
	return ids
}

func BenchmarkDecide(b *testing.B) {
	p := &Policy{Algorithm: FixedWindow, Limit: 1<<32 - 1, Window: 24 * time.Hour}
	for _, n := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("op=allow/keys=%d", n), func(b *testing.B) {
			t, ids := newTable(b, 0), benchIDs(n)
			batch := &Batch{Charges: []Charge{{Policy: p, Hits: 1}}}
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
