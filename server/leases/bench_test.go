package leases

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// BenchmarkGrant grants leases of random lifetimes while n other leases are granted. Each lease is
// returned after n more were granted.
func BenchmarkGrant(b *testing.B) {
	for _, c := range []struct {
		name string
		n    uint64
	}{{"100", 100}, {"60000", 60_000}} {
		b.Run(c.name, func(b *testing.B) {
			t := New(Options{Shared: true})
			origin := &Origin{"", nil, &descriptors.Descriptor{}}
			next, oldest := uint64(0), uint64(0)
			random := rand.New(rand.NewPCG(1, 2))
			grant := func() {
				t.Grant(0, &Lease{
					Key: Key{identity.ID{Hi: next}, limiter.FirstLease}, Expires: limiter.Time(1 + random.Uint64N(1<<40)),
				}, &limiter.Policy{}, origin)
				next++
			}
			for range c.n {
				grant()
			}
			b.ReportAllocs()
			for b.Loop() {
				grant()
				t.Return(nil, Key{identity.ID{Hi: oldest}, limiter.FirstLease})
				oldest++
			}
		})
	}
}
