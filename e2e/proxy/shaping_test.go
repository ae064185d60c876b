//go:build more

package proxy_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// shapedListener has a timeout that is longer than the delays of all rules.
var shapedListener = listener{
	rateLimit: []string{"timeout: 70s"},
	routes:    `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`,
}

// TestRequestsAreEvenlySpaced sends 60 requests to an idle counter of 100 per second. One passes
// immediately, 49 follow at intervals of 10 ms, and 10 are denied. For every 10 ms until sluice has
// decided all requests, one more is admitted, so sluice is stopped until Envoy has sent all of
// them.
func TestRequestsAreEvenlySpaced(t *testing.T) {
	t.Parallel()
	const (
		clients  = 60
		waiting  = 49
		interval = 10 * time.Millisecond
		rounds   = 4
	)
	p, limits := startSetup(t, setup{
		rules: `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 0, max_wait: 1s, max_waiting: 49 }
`,
		listener: shapedListener,
	})
	for round := range rounds {
		delayed := metric(t, limits, "sluice_delayed_responses_total")
		decided := metric(t, limits, "ratelimit_service_total_requests") + clients
		sent := p.envoyStat(t, "cluster.sluice.upstream_rq_total") + clients
		freeze(t, limits)
		all := p.sendAll(t, clients, fmt.Sprint("x-user: ", round))
		suite.Eventually(t, "Envoy has sent all requests", func() bool {
			return p.envoyStat(t, "cluster.sluice.upstream_rq_total") == sent
		})
		all.start = time.Now()
		signal(t, limits, syscall.SIGCONT)
		suite.Eventually(t, "sluice has decided all requests", func() bool {
			return metric(t, limits, "ratelimit_service_total_requests") == decided
		})
		decidedWithin := time.Since(all.start)
		passed, denied := all.wait()
		delayed = metric(t, limits, "sluice_delayed_responses_total") - delayed

		late := int(decidedWithin / interval)
		if n := len(passed); n < 1+waiting || n > 1+waiting+late || n+denied != clients {
			t.Errorf("round %d: %d passed and %d were denied, all decided within %v, want 50 to %d admitted and the others denied",
				round+1, n, denied, decidedWithin, 1+waiting+late)
		}
		if n := len(passed) - int(delayed); n < 1 || n > 1+late {
			t.Errorf("round %d: %d passed without a delay, want 1 to %d", round+1, n, 1+late)
		}
		distances := make([]time.Duration, 0, clients)
		for i, after := range passed {
			if slot := time.Duration(i) * interval; after < slot {
				t.Errorf("round %d: request %d passed after %v, want not before %v", round+1, i+1, after, slot)
			}
			distances = append(distances, after-passed[max(0, i-1)])
		}
		slices.Sort(distances)
		t.Logf("round %d: %d passed, median distance %v; all were decided within %v",
			round+1, len(passed), distances[len(distances)/2].Round(time.Microsecond), decidedWithin.Round(time.Microsecond))
		if late == 0 {
			return // the exact number was admitted
		}
	}
}

func signal(t *testing.T, s *sluice.Sluice, sig os.Signal) {
	t.Helper()
	must.OK(t, s.Signal(sig))
}

// freeze stops sluice until SIGCONT. It returns when all threads have stopped.
func freeze(t *testing.T, s *sluice.Sluice) {
	t.Helper()
	signal(t, s, syscall.SIGSTOP)
	threads := fmt.Sprint("/proc/", s.PID(), "/task/*/stat")
	if files, err := filepath.Glob(threads); err != nil || len(files) == 0 {
		t.Skip("this system does not show whether sluice is stopped")
	}
	suite.Eventually(t, "sluice has stopped", func() bool {
		files, _ := filepath.Glob(threads) // the pattern is valid
		return !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			_, state, _ := bytes.Cut(text, []byte(") "))
			return err != nil || !bytes.HasPrefix(state, []byte("T"))
		})
	})
}

// timedBurst is a set of concurrent requests whose durations are measured.
type timedBurst struct {
	// start is the origin of the times.
	start  time.Time
	wg     sync.WaitGroup
	mu     sync.Mutex
	passed []time.Time
	denied int
}

// sendAll sends a request from each of the given number of clients.
func (p *proxy) sendAll(t *testing.T, clients int, header string) *timedBurst {
	t.Helper()
	c := &timedBurst{start: time.Now()}
	for range clients {
		c.wg.Go(func() {
			got, err := p.getFrom(t.Context(), "ingress", "/", header)
			now := time.Now()
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case got.status == http.StatusOK:
				c.passed = append(c.passed, now)
			case got.status == http.StatusTooManyRequests:
				c.denied++
			default:
				t.Errorf("status %d, want 200 or 429", got.status)
			}
		})
	}
	return c
}

// wait returns the sorted times at which requests passed, and the number of denied ones.
func (c *timedBurst) wait() (passed []time.Duration, denied int) {
	c.wg.Wait()
	for _, at := range c.passed {
		passed = append(passed, at.Sub(c.start))
	}
	slices.Sort(passed)
	return passed, c.denied
}
