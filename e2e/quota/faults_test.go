package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// runLoad sends requests of a user to the Envoys, every[i] to Envoy i, while do runs.
func (s *harness) runLoad(t *testing.T, user string, every []time.Duration, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i, pause := range every {
		load.Go(func() { s.load(ctx, t, i, user, pause) })
	}
	do()
	cancel()
	load.Wait()
}

// countAdmitted returns the number of requests of a user that Envoy at has admitted; -1 means all
// Envoys.
func (s *harness) countAdmitted(at int, user string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.admitted {
		if a.user == user && (at < 0 || a.envoy == at) {
			n++
		}
	}
	return n
}

// admittedPerSecond counts the requests of a user that Envoy at admits within a second; -1 means
// all Envoys.
func (s *harness) admittedPerSecond(at int, user string) int {
	before := s.countAdmitted(at, user)
	time.Sleep(time.Second)
	return s.countAdmitted(at, user) - before
}

// awaitShares waits until each Envoy has admitted a request of the user.
func (s *harness) awaitShares(t *testing.T, user string) {
	t.Helper()
	for i := range s.envoys {
		suite.Eventually(t, "each Envoy has a share", func() bool { return s.request(t.Context(), t, i, user) })
	}
}

// TestEnvoyDies kills one of two Envoys. The other one gets most of the limit, and the limit is
// never exceeded.
func TestEnvoyDies(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	s.awaitShares(t, "al")
	s.runLoad(t, "al", []time.Duration{5 * time.Millisecond}, func() {
		s.runLoad(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() { time.Sleep(8 * time.Second) })
		died := time.Now()
		s.envoys[1].Kill()
		suite.Eventually(t, "the other Envoy has most of the limit", func() bool { return s.admittedPerSecond(0, "al") >= 80 })
		t.Logf("after %.1f s the other Envoy admits 80 requests a second", time.Since(died).Seconds())
	})
	s.checkBound(t, "al", 100, 20)
}

// TestLongServiceOutage stops sluice until assignments have expired. Envoy then applies
// expired_assignment_behavior, here DENY_ALL, and gets a share again after the restart.
func TestLongServiceOutage(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 1)
	s.awaitShares(t, "al")
	s.sluice.Kill()
	suite.Eventually(t, "shares have expired", func() bool {
		time.Sleep(100 * time.Millisecond) // long enough for a share to admit ten requests
		return !s.request(t.Context(), t, 0, "al")
	})
	s.startSluice(t)
	s.awaitShares(t, "al")
	s.checkBound(t, "al", 100, 2*10)
}
