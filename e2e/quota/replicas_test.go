package quota_test

import (
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// The cluster of the tests' Envoys, and its settings for several sluices in docs/rlqs.md.
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

// healthChecked are the replacements in the configuration of Envoys that find the leader by health
// checks.
var healthChecked = []string{oneSluice, severalSluices, noKeepalive, withKeepalive}

// replicas is a harness with several sluices that share a store.
type replicas struct {
	*harness
	sluices []*sluice.Sluice
	store   *storetest.Server
}

// startReplicas starts two sluices that share a store, of which the first is the leader, and two
// Envoys that use either.
func startReplicas(t *testing.T, replacements []string, args ...string) *replicas {
	t.Helper()
	suite.Envoy(t, root)
	server := storetest.Start(t)
	s := start(t, rules100, 0, append([]string{"--store", "redis://" + server.Addr}, args...)...)
	tr := &replicas{s, []*sluice.Sluice{s.sluice}, server}
	tr.awaitLeader(t)
	second := "unix://" + filepath.Join(filepath.Dir(s.rules), "second.sock")
	tr.sluices = append(tr.sluices, s.startSluiceAt(t, second))
	s.others = []string{second}
	for range 2 {
		s.startEnvoy(t, replacements...)
	}
	return tr
}

// awaitLeader waits until exactly one of the given sluices, by default all, is the leader, and
// returns its index.
func (tr *replicas) awaitLeader(t *testing.T, of ...int) (leader int) {
	t.Helper()
	if of == nil {
		for i := range tr.sluices {
			of = append(of, i)
		}
	}
	leads := func(i int) bool { return suite.Metrics(t, tr.sluices[i]).Sum("sluice_quota_leader_domains") == 1 }
	suite.Eventually(t, "one sluice is the leader", func() bool {
		leaders := 0
		for _, i := range of {
			if leads(i) {
				leaders++
				if leaders > 1 && leads(leader) { // still
					t.Error("two sluices divide the same domain")
				}
				leader = i
			}
		}
		return leaders == 1
	})
	return leader
}

// awaitStreams waits until both Envoys have a stream to the sluice with the given index.
func (tr *replicas) awaitStreams(t *testing.T, of int) {
	t.Helper()
	suite.Eventually(t, "sluice "+strconv.Itoa(of)+" has both streams", func() bool {
		return suite.Metrics(t, tr.sluices[of]).Sum("sluice_quota_streams") == 2
	})
}

// awaitStreamsToLeader waits until both Envoys have a stream to the leader, and returns its index, and
// that of the other sluice. It is not always the first: on a busy machine the leadership of a sluice
// that is delayed for seconds passes to the other one.
func (tr *replicas) awaitStreamsToLeader(t *testing.T) (leader, other int) {
	t.Helper()
	suite.Eventually(t, "the leader has both streams", func() bool {
		leader = tr.awaitLeader(t)
		return suite.Metrics(t, tr.sluices[leader]).Sum("sluice_quota_streams") == 2
	})
	return leader, 1 - leader
}

// longestPause returns the longest time between two admitted requests of a user after the given
// time, from the response to the first until the second is sent.
func (s *harness) longestPause(user string, since time.Duration) (longest time.Duration) {
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

// TestLeaderDies kills the leader of two sluices while Envoys have demand. The other one takes
// over, and the limit is never exceeded.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	tr := startReplicas(t, healthChecked)
	tr.awaitShares(t, "al")
	tr.runLoad(t, "al", []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, func() {
		time.Sleep(8 * time.Second)
		leader, other := tr.awaitStreamsToLeader(t)
		at, died := time.Since(tr.begun), time.Now()
		tr.sluices[leader].Kill()
		tr.awaitLeader(t, other)
		elected := time.Since(died)
		tr.awaitStreams(t, other)
		t.Logf("after %.1f s the other sluice is the leader, after %.1f s it has both Envoys", elected.Seconds(), time.Since(died).Seconds())
		time.Sleep(20 * time.Second)
		t.Logf("the longest time without an admitted request is %v", tr.longestPause("al", at))
	})
	tr.checkBound(t, "al", 100, 2*20)
}

// TestEnvoysFindLeader has Envoys without health checks reconnect until they find the leader. Other
// sluices fail their streams, including a former leader that still serves.
func TestEnvoysFindLeader(t *testing.T) {
	t.Parallel()
	tr := startReplicas(t, nil, "--drain-delay=1h")
	begun := time.Now()
	tr.awaitShares(t, "al")
	leader, other := tr.awaitStreamsToLeader(t)
	t.Logf("after %.1f s both Envoys have a share; the other sluice rejected %g streams", time.Since(begun).Seconds(),
		suite.Metrics(t, tr.sluices[other]).Sum("sluice_quota_misdirected_streams_total"))
	before := suite.Metrics(t, tr.sluices[leader]).Sum("sluice_quota_misdirected_streams_total")
	must.OK(t, tr.sluices[leader].Signal(syscall.SIGTERM))
	begun = time.Now()
	tr.awaitStreams(t, other)
	if n := suite.Metrics(t, tr.sluices[leader]).Sum("sluice_quota_misdirected_streams_total") - before; n < 2 {
		t.Errorf("the former leader rejected %g streams, want at least 2", n)
	}
	t.Logf("after %.1f s both use the new leader", time.Since(begun).Seconds())
}
