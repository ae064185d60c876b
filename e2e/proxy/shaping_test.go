//go:build more

package proxy_test

import (
	"bytes"
	"context"
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

// delayedRequest is a request whose reply sluice delays.
type delayedRequest struct {
	cancel context.CancelFunc
	got    chan reply // closed without a reply if the request failed
}

// startDelayed sends a request and waits until sluice delays its reply.
func (p *proxy) startDelayed(t *testing.T, limits *sluice.Sluice, listener string, headers ...string) delayedRequest {
	t.Helper()
	h, delayed := p.tryDelayed(t, limits, listener, headers...)
	if !delayed {
		t.Fatal("the reply is not delayed")
	}
	return h
}

// tryDelayed sends a request and waits until sluice delays its reply, or the request has passed.
func (p *proxy) tryDelayed(t *testing.T, limits *sluice.Sluice, listener string, headers ...string) (h delayedRequest, delayed bool) {
	t.Helper()
	before := metric(t, limits, "sluice_delayed_responses_total")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	h = delayedRequest{cancel, make(chan reply, 1)}
	go func() {
		defer close(h.got)
		if got, err := p.getFrom(ctx, listener, "/", headers...); err == nil {
			h.got <- got
		}
	}()
	suite.Eventually(t, "the reply is delayed, or has arrived", func() bool {
		arrived := len(h.got) > 0
		delayed = metric(t, limits, "sluice_delayed_responses_total") > before
		return delayed || arrived
	})
	return h, delayed
}

// TestCancelledRequestsFreeTheirSlot cancels delayed requests. The slot of the newest
// request becomes free. The slot of an older one does not, because the delays of later requests are
// already fixed.
func TestCancelledRequestsFreeTheirSlot(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules: `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 120, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 2 }
`,
		listener: shapedListener,
	})
	full := func(when string) {
		t.Helper()
		if got := p.get(t, "/", "x-user: al"); got.status != http.StatusTooManyRequests {
			t.Errorf("%s: status %d, want 429", when, got.status)
		}
	}
	leave := func(h delayedRequest, cancelled float64) {
		t.Helper()
		h.cancel()
		suite.Eventually(t, "sluice notices the cancellation", func() bool {
			return metric(t, limits, "sluice_delayed_responses_cancelled_total") == cancelled
		})
	}
	if got := p.get(t, "/", "x-user: al"); got.status != http.StatusOK {
		t.Fatalf("status %d of the first request, want 200", got.status)
	}
	first := p.startDelayed(t, limits, "ingress", "x-user: al")
	second := p.startDelayed(t, limits, "ingress", "x-user: al")
	full("two wait")
	leave(second, 1)
	second = p.startDelayed(t, limits, "ingress", "x-user: al")
	full("after the last was cancelled and another was sent")
	leave(first, 2)
	full("after the first was cancelled")
	leave(second, 3)
	second = p.startDelayed(t, limits, "ingress", "x-user: al")
	full("after both were cancelled and one was sent")
	if got := metric(t, limits, "sluice_delayed_responses_pending"); got != 1 {
		t.Errorf("%v calls wait, want 1", got)
	}
	leave(second, 4)
	suite.Eventually(t, "no request waits", func() bool { return metric(t, limits, "sluice_delayed_responses_pending") == 0 })
}

// TestShutdownAnswersDelayedRequests stops sluice while it delays replies. All requests pass, none
// before its time. On a busy machine a request may arrive so late that it is not delayed, and the
// requests are sent again, as another user.
func TestShutdownAnswersDelayedRequests(t *testing.T) {
	t.Parallel()
	const (
		waiting  = 3
		interval = 2 * time.Second
	)
	p, limits := startSetup(t, setup{
		rules: `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 30, algorithm: leaky_bucket, slack: 0, max_wait: 10s }
`,
		listener: shapedListener,
	})
	var start time.Time
	var queue []delayedRequest
	for n := 0; len(queue) < waiting; n++ {
		start, queue = time.Now(), nil
		user := fmt.Sprint("x-user: ", n)
		if got := p.get(t, "/", user); got.status != http.StatusOK {
			t.Fatalf("status %d of the first request, want 200", got.status)
		}
		for range waiting {
			h, delayed := p.tryDelayed(t, limits, "ingress", user)
			if !delayed {
				break
			}
			queue = append(queue, h)
		}
	}
	signal(t, limits, syscall.SIGTERM)
	for i, h := range queue {
		got, after := <-h.got, time.Since(start)
		if slot := time.Duration(i+1) * interval; got.status != http.StatusOK || after < slot {
			t.Errorf("delayed request %d: status %d after %v, want 200 and not before %v", i+1, got.status, after, slot)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if code, err := limits.Wait(ctx); code != 0 || err != nil {
		t.Errorf("Wait() = %d, %v, want 0, nil; log of sluice:\n%s", code, err, limits.Log())
	}
}

// TestDelaysBeyondEnvoysTimeoutAreDenied sends a request with a timeout of 20 ms whose delay is a
// minute. Sluice knows the deadline and denies immediately.
func TestDelaysBeyondEnvoysTimeoutAreDenied(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s }
`)}})
	p := startProxy(t, []listener{
		{name: "patient", rateLimit: shapedListener.rateLimit, routes: shapedListener.routes},
		{name: "default", rateLimit: []string{"timeout: null"}, routes: shapedListener.routes},
	}, "", limits)
	if got, err := p.getFrom(t.Context(), "patient", "/", "x-user: al"); err != nil || got.status != http.StatusOK {
		t.Fatalf("status %d, %v of the first request, want 200", got.status, err)
	}
	answers := map[int]int{}
	for range 20 {
		got, err := p.getFrom(t.Context(), "default", "/", "x-user: al")
		must.OK(t, err)
		answers[got.status]++
	}
	// On a busy machine an immediate reply may also exceed the timeout: 500.
	if denied := answers[http.StatusTooManyRequests]; denied == 0 || answers[http.StatusOK] > 0 {
		t.Errorf("answers by status are %v, want 429", answers)
	}
	t.Logf("answers by status: %v", answers)
	if got := metric(t, limits, "sluice_delayed_responses_total"); got != 0 {
		t.Errorf("%v calls were delayed, want none", got)
	}
	p.startDelayed(t, limits, "patient", "x-user: al").cancel()
}
