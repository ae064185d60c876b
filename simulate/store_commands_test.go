package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestCommandsOfLimits checks that the commands of all limits are those of all requests.
func TestCommandsOfLimits(t *testing.T) {
	bucket := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 500, Burst: 500, Window: time.Second}
	window := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 500, Window: time.Second}
	m := newModel(t, 2, time.Millisecond, true)
	m.plan.Limits = compile(t, `
domain: shop
descriptors: [{ key: user, rate_limits: [{ unit: second, requests_per_unit: 500, name: a }, { unit: minute, requests_per_unit: 500, name: b }] }]
`).Limits
	start := limiter.Time(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	m.uses = append(m.uses, m.uses...)
	for i := range 5000 {
		m.request(start+limiter.Time(i)*limiter.Time(3*time.Millisecond), i%2, []*limiter.Policy{bucket, window})
	}
	m.finish()
	sum := 0.0
	for _, u := range m.uses {
		sum += u.Commands
	}
	if math.Abs(sum-m.total.Commands) > 0.5 {
		t.Errorf("the limits have %.0f commands %v, the requests %.0f", sum, m.uses, m.total.Commands)
	}
}
