package quota_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// The cluster of the tests' Envoys, and what docs/rlqs.md says that it needs where there are several sluices.
const (
	oneSluice      = "    - name: sluice\n      connect_timeout: 1s\n      type: STATIC\n"
	severalSluices = oneSluice + `      common_lb_config: { healthy_panic_threshold: { value: 0 } }
      health_checks:
        - timeout: 1s
          interval: 1s
          no_traffic_interval: 1s
          unhealthy_threshold: 1
          healthy_threshold: 1
          grpc_health_check: { service_name: quota.d }
`
	noKeepalive   = "http2_protocol_options: {}"
	withKeepalive = "http2_protocol_options: { connection_keepalive: { interval: 10s, timeout: 2s } }"
)

// healthChecked are the replacements in the configuration of Envoys that ask who divides.
var healthChecked = []string{oneSluice, severalSluices, noKeepalive, withKeepalive}

// A troupe is a stage with several sluices that share a store.
type troupe struct {
	*stage
	sluices []*sluice.Sluice
	store   *storetest.Server
}

// playSeveral starts a stage with two sluices that share a store, and two Envoys that ask one of them.
func playSeveral(t *testing.T, replacements []string, args ...string) *troupe {
	t.Helper()
	suite.Envoy(t, root)
	server := storetest.Start(t)
	s := play(t, hundredASecond, 0, append([]string{"--store", "redis://" + server.Addr}, args...)...)
	tr := &troupe{s, []*sluice.Sluice{s.sluice}, server}
	tr.divider(t)
	second := "unix://" + filepath.Join(filepath.Dir(s.rules), "second.sock")
	tr.sluices = append(tr.sluices, s.startSluiceAt(t, second))
	s.others = []string{second}
	for range 2 {
		s.startEnvoy(t, replacements...)
	}
	return tr
}

// divider waits until one of the sluices divides, and returns its number.
func (tr *troupe) divider(t *testing.T, of ...int) (number int) {
	t.Helper()
	if of == nil {
		for i := range tr.sluices {
			of = append(of, i)
		}
	}
	suite.Eventually(t, "one sluice divides", func() bool {
		divide := 0
		for _, i := range of {
			if suite.Metrics(t, tr.sluices[i]).Sum("sluice_quota_leader_domains") == 1 {
				divide, number = divide+1, i
			}
		}
		if divide > 1 {
			t.Error("two sluices divide the same domain")
		}
		return divide == 1
	})
	return number
}

// streams waits until a sluice has the streams of both Envoys.
func (tr *troupe) streams(t *testing.T, of int) {
	t.Helper()
	suite.Eventually(t, "sluice "+strconv.Itoa(of)+" has both streams", func() bool {
		return suite.Metrics(t, tr.sluices[of]).Sum("sluice_quota_streams") == 2
	})
}

// longestPause returns the longest time from the answer to a request of a user that passed to when the next such was
// sent, since a time.
func (s *stage) longestPause(user string, since time.Duration) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := since
	for _, a := range s.admitted {
		if a.user == user && a.sent > since {
			longest, last = max(longest, a.sent-last), max(last, a.answered)
		}
	}
	return longest
}

// TestSluiceThatDividesDies kills the one of two sluices that divides, while Envoys have demand: the other takes over, and
// never more than the limit passes.
func TestSluiceThatDividesDies(t *testing.T) {
	t.Parallel()
	tr := playSeveral(t, healthChecked)
	tr.awaitShares(t, "al")
	tr.streams(t, 0)
	tr.during(t, "al", []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, func() {
		time.Sleep(8 * time.Second)
		at, died := time.Since(tr.begun), time.Now()
		tr.sluices[0].Kill()
		tr.divider(t, 1)
		took := time.Since(died)
		tr.streams(t, 1)
		t.Logf("after %.1f s the other sluice divides, after %.1f s it has both Envoys", took.Seconds(), time.Since(died).Seconds())
		time.Sleep(20 * time.Second)
		t.Logf("the longest time without a request that passed is %v", tr.longestPause("al", at))
	})
	tr.hold(t, "al", 100, 2*20)
}

// TestSluiceThatDividesPauses stops the one that divides for so long that another does, and has it go on: it divides no
// more, since its own clock says that its role is over.
func TestSluiceThatDividesPauses(t *testing.T) {
	t.Parallel()
	tr := playSeveral(t, healthChecked)
	tr.awaitShares(t, "al")
	tr.streams(t, 0)
	tr.during(t, "al", []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, func() {
		time.Sleep(8 * time.Second)
		must.OK(t, tr.sluices[0].Signal(syscall.SIGSTOP))
		tr.divider(t, 1)
		tr.streams(t, 1)
		must.OK(t, tr.sluices[0].Signal(syscall.SIGCONT))
		suite.Eventually(t, "who paused knows that another divides", func() bool {
			return strings.Contains(tr.sluices[0].Log(), "another sluice divides the quotas of a domain")
		})
		tr.divider(t)
		time.Sleep(15 * time.Second)
	})
	tr.hold(t, "al", 100, 2*20)
}

// TestSluiceThatDividesDrains ends the one that divides in order: it gives its role back before it has ended, while it
// still answers.
func TestSluiceThatDividesDrains(t *testing.T) {
	t.Parallel()
	tr := playSeveral(t, healthChecked, "--drain-delay=1h")
	tr.awaitShares(t, "al")
	tr.streams(t, 0)
	tr.during(t, "al", []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, func() {
		time.Sleep(8 * time.Second)
		at, begun := time.Since(tr.begun), time.Now()
		must.OK(t, tr.sluices[0].Signal(syscall.SIGTERM))
		tr.divider(t, 1)
		took := time.Since(begun)
		tr.streams(t, 1)
		t.Logf("after %.1f s the other sluice divides, after %.1f s it has both Envoys", took.Seconds(), time.Since(begun).Seconds())
		time.Sleep(15 * time.Second)
		t.Logf("the longest time without a request that passed is %v", tr.longestPause("al", at))
	})
	tr.hold(t, "al", 100, 2*20)
}

// TestEnvoysFindWhoDivides has Envoys that check no health ask until they come to the sluice that divides: the others end
// their streams, also one that did and answers still.
func TestEnvoysFindWhoDivides(t *testing.T) {
	t.Parallel()
	tr := playSeveral(t, nil, "--drain-delay=1h")
	begun := time.Now()
	tr.awaitShares(t, "al")
	tr.streams(t, 0)
	t.Logf("after %.1f s both Envoys have a share; the other sluice ended %g streams", time.Since(begun).Seconds(),
		suite.Metrics(t, tr.sluices[1]).Sum("sluice_quota_misdirected_streams_total"))
	must.OK(t, tr.sluices[0].Signal(syscall.SIGTERM))
	begun = time.Now()
	tr.streams(t, 1)
	if n := suite.Metrics(t, tr.sluices[0]).Sum("sluice_quota_misdirected_streams_total"); n < 2 {
		t.Errorf("who divides no more ended %g streams", n)
	}
	t.Logf("after %.1f s both ask the other", time.Since(begun).Seconds())
}

// TestStoreOfSluicesDies takes the store away: nobody divides once the role has ended, and Envoys do what their
// configuration says when their shares have, which is to deny here. When the store is back they have shares again.
func TestStoreOfSluicesDies(t *testing.T) {
	t.Parallel()
	tr := playSeveral(t, healthChecked)
	tr.awaitShares(t, "al")
	tr.during(t, "al", []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, func() {
		time.Sleep(8 * time.Second)
		died := time.Now()
		tr.store.Kill()
		suite.Eventually(t, "nobody divides", func() bool {
			return suite.Metrics(t, tr.sluices[0]).Sum("sluice_quota_leader_domains")+suite.Metrics(t, tr.sluices[1]).Sum("sluice_quota_leader_domains") == 0
		})
		t.Logf("after %.1f s nobody divides", time.Since(died).Seconds())
		suite.Eventually(t, "shares have ended", func() bool { return tr.inASecond(-1, "al") == 0 })
		t.Logf("after %.1f s nothing passes", time.Since(died).Seconds())
		tr.store.Run()
		back, before := time.Now(), tr.passed(-1, "al")
		suite.Eventually(t, "shares are back", func() bool { return tr.passed(-1, "al") > before })
		t.Logf("%.1f s after the store is back something passes", time.Since(back).Seconds())
		time.Sleep(5 * time.Second)
	})
	tr.hold(t, "al", 100, 2*20)
}
