package limiter

import (
	"testing"
	"time"
)

// TestAFloodOfOneKindSparesTheOther fills a small table with counters of one kind and then of the
// other. Established counters of both kinds stay, although each is the only one of its kind in
// its blocks when the flood of its own kind begins.
func TestAFloodOfOneKindSparesTheOther(t *testing.T) {
	t.Parallel()
	window := &Policy{Algorithm: FixedWindow, Limit: 100, Window: 24 * time.Hour}
	bucket := &Policy{Algorithm: TokenBucket, Limit: 100, Burst: 100, Window: 24 * time.Hour}
	for name, order := range map[string][2]*Policy{
		"windows then buckets": {window, bucket},
		"buckets then windows": {bucket, window},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const established, used, flood = 50, 57, 60_000
			table := newTable(t, 256<<10)
			hit := func(p *Policy, number, hits uint64) *Decision {
				h := testHasher
				h.AddWord(number)
				h.AddWord(uint64(p.Algorithm))
				return &decide(table, 0, Charge{ID: h.Sum(), Policy: p, Hits: hits}).Decisions[0]
			}
			for i := range uint64(established) {
				hit(window, i, used)
				hit(bucket, i, used)
			}
			for _, p := range order {
				for i := range uint64(flood) {
					hit(p, 1000+i, 1)
				}
			}
			for i := range uint64(established) {
				for _, p := range order {
					if got := hit(p, i, 0).Remaining; got != 100-used {
						t.Errorf("counter %d of algorithm %d has %d left, want %d", i, p.Algorithm, got, 100-used)
					}
				}
			}
			if table.Stats().Evicted == 0 {
				t.Error("no counter was evicted; want a flood")
			}
		})
	}
}
