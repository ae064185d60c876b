package quota_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestShadow exceeds a limit in shadow mode. All requests are admitted, and those over the limit
// are counted.
func TestShadow(t *testing.T) {
	t.Parallel()
	s := start(t, strings.Replace(rules100, "{ key: api, value: all,", "{ key: api, value: all, shadow_mode: true,", 1), 1)
	suite.Eventually(t, "an assignment", func() bool { return s.request(t.Context(), t, 0, "al") })
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	denied := s.denied // before the assignment
	s.mu.Unlock()
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() { s.load(ctx, t, 0, "al", 2*time.Millisecond) })
	}
	suite.Eventually(t, "hits over the limit", func() bool {
		return s.metric(t, "ratelimit_service_rate_limit_shadow_mode", `domain="d"`, `rule="user.api_all"`) > 0
	})
	cancel()
	load.Wait()
	if s.denied > denied {
		t.Errorf("%d requests were denied", s.denied-denied)
	}
}
