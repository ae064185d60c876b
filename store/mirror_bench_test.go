package store

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// BenchmarkMirror measures the cost of updating the mirror, per charge that the store has decided.
func BenchmarkMirror(b *testing.B) {
	table, err := limiter.New(limiter.Options{Bytes: 64 << 20})
	must.OK(b, err)
	s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}, Timeout: longTimeout, Fallback: Local, Table: table})
	must.OK(b, err)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Hour}
	for _, mirror := range []bool{false, true} {
		b.Run(map[bool]string{false: "mirror=off", true: "mirror=on"}[mirror], func(b *testing.B) {
			now := limiter.Time(time.Now().UnixNano())
			batch := &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}
			found := []limiter.State{{Time: p.WindowEnd(now)}}
			var left limiter.State
			random := rand.New(rand.NewPCG(18, 18))
			ids := make([]identity.ID, 100_000)
			for i := range ids {
				ids[i] = identity.ID{Hi: random.Uint64(), Lo: random.Uint64()}
			}
			b.ReportAllocs()
			for b.Loop() {
				batch.Charges[0].ID = ids[random.IntN(len(ids))]
				found[0].Hits++
				batch.Stored().Decide(now, found)
				if mirror {
					s.updateMirror(now, batch, &left)
				}
			}
		})
	}
}
