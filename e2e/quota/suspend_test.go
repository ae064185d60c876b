package quota_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEnvoySuspended suspends one of two Envoys, sends it an assignment, and waits until the other
// one has its share. After it resumes, the Envoy may apply that assignment and so exceed the limit
// until it expires. Then the bound holds again.
func TestEnvoySuspended(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2, "--keepalive-time=1s", "--keepalive-timeout=1s")
	s.awaitShares(t, "al")
	signal := func(sig syscall.Signal) {
		t.Helper()
		must.OK(t, s.envoys[1].Signal(sig))
	}
	s.runLoad(t, "al", []time.Duration{5 * time.Millisecond}, func() {
		s.runLoad(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() { time.Sleep(8 * time.Second) })
		signal(syscall.SIGSTOP)
		defer signal(syscall.SIGCONT)
		s.writeRules(t, strings.Replace(rules100, "100", "80", 1))
		suite.Eventually(t, "the other Envoy has most of the limit", func() bool {
			return s.admittedPerSecond(0, "al") >= 65 && s.metric(t, "sluice_quota_streams") == 1
		})
		s.checkBound(t, "al", 100, 20)
	})
	s.runLoad(t, "al", []time.Duration{5 * time.Millisecond, 5 * time.Millisecond}, func() {
		suite.Eventually(t, "the Envoy has reconnected", func() bool { return s.metric(t, "sluice_quota_streams") == 2 })
		time.Sleep(12*time.Second + process.ScaleByLoad(time.Second)) // until each assignment that it may have read has expired
		from := time.Since(s.begun)
		time.Sleep(5 * time.Second)
		s.dropAdmittedBefore(from)
	})
	s.checkBound(t, "al", 80, 20)
}
