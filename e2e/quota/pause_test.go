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

// TestEnvoyPauses stops one of two Envoys, and then tells it something, until the other has its share. When it goes on, it
// may take what it was told, and let that pass beyond the limit, until it has reported. Then all is as before.
func TestEnvoyPauses(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 2, "--keepalive-time=1s", "--keepalive-timeout=1s")
	s.awaitShares(t, "al")
	signal := func(sig syscall.Signal) {
		t.Helper()
		must.OK(t, s.envoys[1].Signal(sig))
	}
	s.during(t, "al", []time.Duration{5 * time.Millisecond}, func() {
		s.during(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() { time.Sleep(8 * time.Second) })
		signal(syscall.SIGSTOP)
		defer signal(syscall.SIGCONT)
		s.write(t, strings.Replace(hundredASecond, "100", "80", 1))
		suite.Eventually(t, "the other Envoy has most of the limit", func() bool {
			return s.inASecond(0, "al") >= 65 && s.metric(t, "sluice_quota_streams") == 1
		})
		s.hold(t, "al", 100, 20)
	})
	s.during(t, "al", []time.Duration{5 * time.Millisecond, 5 * time.Millisecond}, func() {
		suite.Eventually(t, "the Envoy is back", func() bool { return s.metric(t, "sluice_quota_streams") == 2 })
		time.Sleep(12*time.Second + process.ScaleByLoad(time.Second)) // in which all that it may have taken has ended
		from := time.Since(s.begun)
		time.Sleep(5 * time.Second)
		s.since(from)
	})
	s.hold(t, "al", 80, 20)
}
