package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const rules100 = `
domain: d
descriptors:
  - key: user
    descriptors:
      - { key: api, value: all, rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: { burst: 0.1s, min_tokens: 4 } } }
`

// TestTwoEnvoysShareLimit sends each Envoy more requests than the limit. Each gets a share, and
// together they never exceed the limit.
func TestTwoEnvoysShareLimit(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	for i := range s.envoys {
		suite.Eventually(t, "each Envoy has a share", func() bool { return s.request(t.Context(), t, i, "al") })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var load sync.WaitGroup
	begun := time.Now()
	for i := range s.envoys {
		load.Go(func() { s.load(ctx, t, i, "al", 4*time.Millisecond) })
	}
	load.Wait()
	n := s.checkBound(t, "al", 100, 2*10)
	t.Logf("%d denied; used %.3f of the limit", s.denied, float64(n)/100/time.Since(begun).Seconds())
}
