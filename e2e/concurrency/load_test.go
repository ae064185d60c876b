package concurrency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// long selects the long tier (make concurrency), which measures and needs the machine for itself.
func long(tb testing.TB) bool {
	tb.Helper()
	return effort.Level(tb) >= effort.All
}

const (
	inFlight    = 16
	clientCount = 64
)

var inFlightRules = fmt.Sprintf(`
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: %d, unit: hour } }
`, inFlight)

// TestLimitUnderLoad runs more clients than permits and checks the count of the backend against the
// limit. In the long tier nearly all permits must be used.
func TestLimitUnderLoad(t *testing.T) {
	parallelUnlessLong(t)
	new(loadClients).run(t)
}

// TestLimitUnderLoadWithAborts is TestLimitUnderLoad with clients that disconnect early and a
// backend that resets streams.
func TestLimitUnderLoadWithAborts(t *testing.T) {
	parallelUnlessLong(t)
	(&loadClients{abortShare: 0.3, resetShare: 0.2}).run(t)
}

// TestEnvoyKilledUnderLoad checks that the permits of a killed Envoy are free within two seconds.
func TestEnvoyKilledUnderLoad(t *testing.T) {
	effort.Require(t, effort.All)
	c := &loadClients{long: true}
	c.testbed = startTestbed(t, inFlightRules, c.answer)
	end := time.Now().Add(10 * time.Second)
	var clients sync.WaitGroup
	for range clientCount {
		clients.Go(func() {
			for time.Now().Before(end) {
				if status, err := c.testbed.get(t.Context(), "al", "/"); err == nil && status == http.StatusTooManyRequests {
					pause()
				}
			}
		})
	}
	time.Sleep(time.Until(end) - time.Second) // while the clients still run
	c.testbed.envoy.Kill()
	killed := time.Now()
	if free := c.testbed.freePermits(t, "al"); free > inFlight/2 {
		t.Errorf("%d permits are free immediately", free)
	}
	c.testbed.awaitFreePermits(t, "al", inFlight)
	took := time.Since(killed)
	t.Logf("all permits were free %v after Envoy was killed", took)
	if took > 2*time.Second {
		t.Errorf("releasing the permits took %v, want 2 s", took)
	}
	clients.Wait()
}

// parallelUnlessLong runs a test of the short tier in parallel. In the long tier a test has the
// machine for itself.
func parallelUnlessLong(t *testing.T) {
	t.Helper()
	if !long(t) {
		t.Parallel()
	}
}

// loadClients are clients that each send one request after another.
type loadClients struct {
	abortShare float64 // share of the requests whose clients disconnect within 3 ms
	resetShare float64 // share of the requests that the backend resets

	long    bool // whether this is the long tier
	testbed *testbed
	// Number of requests by outcome.
	passed, denied, reset, aborted atomic.Int64
}

func (c *loadClients) run(t *testing.T) {
	t.Helper()
	c.long = long(t)
	c.testbed = startTestbed(t, inFlightRules, c.answer)
	more := func() bool { return c.denied.Load() == 0 || c.passed.Load()+c.reset.Load() < 500 }
	if c.long {
		end := time.Now().Add(time.Minute)
		more = func() bool { return time.Now().Before(end) }
	}
	var clients sync.WaitGroup
	for range clientCount {
		clients.Go(func() {
			for more() && c.sendRequest(t) {
			}
		})
	}
	clients.Wait()
	c.testbed.awaitFreePermits(t, "al", inFlight)
	c.testbed.envoy.Kill() // its access log is complete
	c.checkLimit(t)
}

// answer keeps a request for 50 to 500 ms, or a tenth of that in the short tier.
func (c *loadClients) answer(_ http.ResponseWriter, r *http.Request) {
	held := time.Duration(rand.Int64N(450)+50) * time.Millisecond
	if !c.long {
		held /= 10
	}
	timer := time.NewTimer(held)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	if rand.Float64() < c.resetShare {
		panic(http.ErrAbortHandler)
	}
}

// sendRequest sends a request and reports whether the outcome is allowed.
func (c *loadClients) sendRequest(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if rand.Float64() < c.abortShare {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(3*time.Millisecond))))
	}
	defer cancel()
	switch status, err := c.testbed.get(ctx, "al", "/"); {
	case errors.Is(err, context.DeadlineExceeded):
		c.aborted.Add(1)
		pause()
	case status == http.StatusOK && err == nil:
		c.passed.Add(1)
	case status == http.StatusServiceUnavailable && c.resetShare > 0:
		c.reset.Add(1)
	case status == http.StatusTooManyRequests:
		c.denied.Add(1)
		pause()
	default:
		t.Errorf("status %d, %v", status, err)
		return false
	}
	return true
}

// pause waits before the next try of a client.
func pause() { time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) }

// checkLimit compares Envoy's access log and the backend's count with the limit.
func (c *loadClients) checkLimit(t *testing.T) {
	t.Helper()
	most, used := overlap(c.testbed.upstreamSpans(t))
	_, top := c.testbed.inFlight()
	t.Logf("%d passed, %d denied, %d reset by the backend, %d aborted; at most %d streams in Envoy, %d at the backend; %.1f %% of %d permits used",
		c.passed.Load(), c.denied.Load(), c.reset.Load(), c.aborted.Load(), most, top, 100*used, inFlight)
	if most > inFlight {
		t.Errorf("Envoy had %d concurrent streams, want at most %d", most, inFlight)
	}
	if c.abortShare == 0 && top > inFlight { // with aborts, a request ends at the backend shortly after Envoy's stream
		t.Errorf("the backend had %d concurrent requests, want at most %d", top, inFlight)
	}
	if c.long && used < 0.97 {
		t.Errorf("%.1f %% of the permits were used, want 97 %%", 100*used)
	}
}

// span is the time from the start of a request to the backend to the end of its stream, in
// microseconds.
type span struct{ from, to int64 }

// upstreamSpans returns the spans of requests in Envoy's access log that reached the backend.
func (s *testbed) upstreamSpans(t *testing.T) []span {
	t.Helper()
	file, err := os.Open(s.accessLog)
	must.OK(t, err)
	defer file.Close()
	var streams []span
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var code, sec, micros, after, endSec, endMicros int64
		var flags string
		// Other requests have "-" in a field.
		if n, _ := fmt.Sscanf(lines.Text(), "%d %s %d.%d %d %d.%d", &code, &flags, &sec, &micros, &after, &endSec, &endMicros); n == 7 {
			streams = append(streams, span{sec*1e6 + micros + after, endSec*1e6 + endMicros})
		}
	}
	must.OK(t, lines.Err())
	return streams
}

// overlap returns the maximum number of concurrent spans, and the share of the permits that was
// used between the first and the last moment at which all were used.
func overlap(spans []span) (most int, used float64) {
	type edge struct {
		at int64
		by int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by // at equal times, ends first
	})
	var now int
	var full, last, sum, at, sumAtLast int64
	for _, e := range edges {
		if full > 0 {
			sum += int64(now) * (e.at - at)
		}
		now, at = now+e.by, e.at
		most = max(most, now)
		if now == inFlight {
			if full == 0 {
				full = e.at
			}
			last, sumAtLast = e.at, sum
		}
	}
	if last == full {
		return most, 0
	}
	return most, float64(sumAtLast) / float64((last-full)*inFlight)
}
