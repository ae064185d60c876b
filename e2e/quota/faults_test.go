package quota_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
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

// TestInvalidUTF8AffectsOneBucket has an end client send a byte that is not valid UTF-8 in the
// header of the bucket ID. Only its own bucket gets no assignment.
func TestInvalidUTF8AffectsOneBucket(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 1)
	s.awaitShares(t, "al")
	if s.request(t.Context(), t, 0, "b\xffb") {
		t.Error("a request with an invalid bucket ID is admitted")
	}
	for range 2 { // two reports contain the byte
		before := s.metric(t, "sluice_quota_ignored_usages_total", `reason="invalid_utf8"`)
		suite.Eventually(t, "a report with the byte", func() bool { return s.metric(t, "sluice_quota_ignored_usages_total", `reason="invalid_utf8"`) > before })
	}
	s.awaitShares(t, "cy") // a new bucket after the invalid one
	if !s.request(t.Context(), t, 0, "al") {
		t.Error("an existing bucket has lost its share")
	}
	if n := s.metric(t, "sluice_quota_streams"); n != 1 {
		t.Errorf("%g streams are open", n)
	}
	if s.request(t.Context(), t, 0, strings.Repeat("x", 5000)) {
		t.Error("a request with a bucket ID that is too long is admitted")
	}
	s.awaitShares(t, "di")
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

// TestServiceOutage kills sluice and restarts it before assignments expire. Envoys continue with
// their shares, and never exceed the limit.
func TestServiceOutage(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	s.awaitShares(t, "al")
	s.runLoad(t, "al", []time.Duration{5 * time.Millisecond, 50 * time.Millisecond}, func() {
		time.Sleep(12 * time.Second)
		before := s.countAdmitted(-1, "al")
		time.Sleep(4 * time.Second)
		steady := s.countAdmitted(-1, "al") - before
		s.sluice.Kill()
		before = s.countAdmitted(-1, "al")
		time.Sleep(4 * time.Second)
		without := s.countAdmitted(-1, "al") - before
		s.startSluice(t)
		before = s.countAdmitted(-1, "al")
		time.Sleep(20 * time.Second)
		t.Logf("admitted in 4 s: %d with the service, %d without; in the 20 s after its restart: %d", steady, without, s.countAdmitted(-1, "al")-before)
	})
	s.checkBound(t, "al", 100, 2*20)
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

// TestDrain shuts sluice down gracefully and starts it again. Envoys reconnect.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 1)
	s.awaitShares(t, "al")
	begun := time.Now()
	must.OK(t, s.sluice.Signal(syscall.SIGTERM))
	if code, err := s.sluice.Wait(t.Context()); err != nil || code != 0 {
		t.Errorf("sluice exited with %d, %v, want 0", code, err)
	}
	t.Logf("the shutdown took %v", time.Since(begun))
	s.startSluice(t)
	suite.Eventually(t, "Envoy has reconnected", func() bool { return s.metric(t, "sluice_quota_streams") == 1 })
	s.awaitShares(t, "bo")
}

// TestRulesChange lowers a limit while Envoys have shares of it.
func TestRulesChange(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	s.awaitShares(t, "al")
	s.runLoad(t, "al", []time.Duration{5 * time.Millisecond, 5 * time.Millisecond}, func() {
		time.Sleep(5 * time.Second)
		s.writeRules(t, strings.Replace(rules100, "100", "40", 1))
		suite.Eventually(t, "both Envoys have a share of the lower limit", func() bool { b := s.largest(t); return b.isConfirmedBy(2, 40) })
		time.Sleep(process.ScaleByLoad(time.Second)) // until all threads of the Envoys apply it
		from := time.Since(s.begun)
		time.Sleep(5 * time.Second)
		s.dropAdmittedBefore(from)
	})
	s.checkBound(t, "al", 40, 20)
}

// TestQuotaRemovedAndRestored raises a limit while Envoys have demand, removes its quota, restores
// it and removes the rule.
func TestQuotaRemovedAndRestored(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	s.awaitShares(t, "al")
	admits := func(least, most int) func() bool { // requests in a second
		return func() bool {
			n := s.admittedPerSecond(-1, "al")
			return n >= least && n <= most
		}
	}
	s.runLoad(t, "al", []time.Duration{4 * time.Millisecond, 4 * time.Millisecond}, func() {
		suite.Eventually(t, "the limit is used", admits(60, 130))
		s.writeRules(t, strings.Replace(rules100, "100", "200", 1))
		suite.Eventually(t, "the higher limit is used", admits(140, 240))
		s.checkBound(t, "al", 200, 2*20)
		s.writeRules(t, strings.Replace(rules100, ", quota: { burst: 0.1s, min_tokens: 4 }", "", 1))
		suite.Eventually(t, "nothing is assigned without quota", admits(0, 0))
		s.writeRules(t, rules100)
		suite.Eventually(t, "the limit is used again", admits(60, 130))
		s.writeRules(t, "domain: d\ndescriptors: [{ key: other }]\n")
		suite.Eventually(t, "nothing is assigned without a rule", admits(0, 0))
	})
	s.checkBound(t, "al", 200, 2*20)
}

// TestEnvoyJoins starts an Envoy while another one has the complete limit. It gets a share, and the
// limit is never exceeded.
func TestEnvoyJoins(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 1)
	s.awaitShares(t, "al")
	s.runLoad(t, "al", []time.Duration{4 * time.Millisecond}, func() {
		time.Sleep(6 * time.Second)
		s.startEnvoy(t)
		s.runLoad(t, "al", []time.Duration{time.Hour, 4 * time.Millisecond}, func() {
			suite.Eventually(t, "the new Envoy has a third of the limit", func() bool { return s.admittedPerSecond(1, "al") >= 33 })
		})
	})
	s.checkBound(t, "al", 100, 2*20)
}
