package concurrency_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// stopSluice stops sluice with SIGTERM.
func (s *testbed) stopSluice(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	if code, err := s.sluice.Stop(ctx); code != 0 || err != nil {
		t.Fatalf("sluice exited with %d, %v:\n%s", code, err, s.sluice.Log())
	}
}

// TestRestartLosesNoPermits restarts sluice with a state file, which does not contain leases: all
// permits are free. The ends of requests that began before do not release permits of other
// requests.
func TestRestartLosesNoPermits(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, releaseRules, nil, "--state-file", filepath.Join(t.TempDir(), "state"))
	s.startStreams(t, "al", 4)
	s.stopSluice(t)
	s.startSluice(t)
	if got := s.freePermits(t, "al"); got != 4 {
		t.Fatalf("after a restart %d permits are free, want 4", got)
	}
	status := make(chan int, 1)
	send := func(user string) {
		go func() {
			got, _ := s.get(t.Context(), user, "/")
			status <- got
		}()
	}
	suite.Eventually(t, "Envoy calls sluice again", func() bool { // until then it denies without a reply
		send("bo")
		select {
		case s.gate("bo") <- struct{}{}:
			return <-status == http.StatusOK
		case <-status:
			return false
		}
	})
	send("al")
	suite.Eventually(t, "a fifth request is at the backend", func() bool { return s.inFlightOf("al") == 5 })
	if got := s.freePermits(t, "al"); got != 3 {
		t.Errorf("with one new request and four old ones, %d permits are free, want 3", got)
	}
	for range 5 {
		s.gate("al") <- struct{}{}
	}
	suite.Eventually(t, "the leases of four earlier requests are ignored, for both filters", func() bool {
		return s.metric(t, "sluice_leases_ignored_total", `reason="stale"`) == 8
	})
	s.awaitFreePermits(t, "al", 4)
}

// TestLeasesSurviveRestart uses --state-file-leases: the permits and their leases are restored.
func TestLeasesSurviveRestart(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, releaseRules, nil, "--state-file", filepath.Join(t.TempDir(), "state"), "--state-file-leases")
	alStreams := s.startStreams(t, "al", 4)
	for range 3 {
		s.stopSluice(t)
		s.startSluice(t)
		if got := s.freePermits(t, "al"); got != 0 {
			t.Fatalf("after a restart %d permits are free, want none", got)
		}
		// Until Envoy has reconnected, it denies without a reply.
		suite.Eventually(t, "Envoy calls sluice again", func() bool {
			got, err := s.get(t.Context(), "al", "/")
			if err != nil || got == http.StatusOK {
				t.Fatalf("a fifth concurrent request got %d (%v)", got, err)
			}
			return got == http.StatusTooManyRequests
		})
		alStreams.finishOne(t)
		s.awaitFreePermits(t, "al", 1)
		alStreams.addOne(t)
	}
	for range 4 {
		alStreams.finishOne(t)
	}
	s.awaitFreePermits(t, "al", 4)
}

// TestReleaseDuringOutage ends a request while sluice is down. With --state-file-leases its permit
// stays held until the window ends.
func TestReleaseDuringOutage(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, `
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 4, unit: second, unit_multiplier: 2 } }
`, nil, "--state-file", filepath.Join(t.TempDir(), "state"), "--state-file-leases")
	status := make(chan int, 1)
	go func() {
		got, err := s.get(t.Context(), "al", "/")
		if err != nil {
			t.Error(err)
		}
		status <- got
	}()
	suite.Eventually(t, "the request is at the backend", func() bool { return s.inFlightOf("al") == 1 })
	s.stopSluice(t)
	s.gate("al") <- struct{}{}
	if got := <-status; got != http.StatusOK {
		t.Errorf("an admitted request got %d, want 200", got)
	}
	s.startSluice(t)
	s.awaitFreePermits(t, "al", 4)
}

// TestDrainedListenerReleases checks that a draining listener finishes its streams, and that their
// ends release permits.
func TestDrainedListenerReleases(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, releaseRules, nil)
	alStreams := s.startStreams(t, "al", 4)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.envoy.Admin+"/drain_listeners", http.NoBody)
	must.OK(t, err)
	reply, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	if _ = reply.Body.Close(); reply.StatusCode != http.StatusOK {
		t.Fatalf("draining Envoy's listeners: status %s", reply.Status)
	}
	alStreams.checkHeldThenReleased(t)
}
