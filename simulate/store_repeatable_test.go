package simulate

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestSimulationIsRepeatable checks that the identities of counters, which are random in each run, do
// not change the result.
func TestSimulationIsRepeatable(t *testing.T) {
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Second, CountRefused: true}
	start := limiter.Time(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	use := func(key uint64) int {
		m := newModel(t, 1, time.Millisecond, true)
		for i := range 50_000 { // 500 counters with 40 hits per second each
			n := uint64(i%500) + 1
			m.plan.Batch.Reset()
			m.plan.Batch.Charges = append(m.plan.Batch.Charges, limiter.Charge{ID: identity.ID{Hi: n * key, Lo: mix(n ^ key)}, Policy: p, Hits: 1})
			m.decide(start+limiter.Time(i)*limiter.Time(50*time.Microsecond), &m.plan)
		}
		m.finish()
		return int(m.total.Commands)
	}
	if a, b := use(0x9E3779B97F4A7C15), use(0xC2B2AE3D27D4EB4F); a != b {
		t.Errorf("%d and %d commands with other identities", a, b)
	}
}

// mix is the finaliser of MurmurHash3.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xFF51AFD7ED558CCD
	x ^= x >> 33
	x *= 0xC4CEB9FE1A85EC53
	return x ^ x>>33
}
