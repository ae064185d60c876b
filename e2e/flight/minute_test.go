package flight_test

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

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// long is whether this is the long tier, which measures and needs the machine to itself: make flight.
var long = os.Getenv("SLUICE_LONG") != ""

const (
	inFlight  = 16
	crowdSize = 64
)

var sixteen = fmt.Sprintf(`
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: %d, unit: hour } }
`, inFlight)

// A crowd of clients asks for more than the limit, and the ledger is held against it. In the long tier nearly all
// places are used.
func TestLedger(t *testing.T) {
	beside(t)
	new(crowd).play(t)
}

// So they are where clients leave early and the backend resets.
func TestLedgerOfClientsThatLeave(t *testing.T) {
	beside(t)
	(&crowd{left: 0.3, resets: 0.2}).play(t)
}

// An Envoy that is killed under load has its places back within two seconds.
func TestAnEnvoyKilledUnderLoad(t *testing.T) {
	if !long {
		t.Skip("it measures: make flight runs it, before a release")
	}
	c := &crowd{}
	c.stage = play(t, sixteen, c.answer)
	end := time.Now().Add(10 * time.Second)
	var clients sync.WaitGroup
	for range crowdSize {
		clients.Go(func() {
			for time.Now().Before(end) {
				if status, err := c.stage.get(t.Context(), "al", "/"); err == nil && status == http.StatusTooManyRequests {
					pause()
				}
			}
		})
	}
	time.Sleep(time.Until(end) - time.Second) // the clients are still there
	c.stage.envoy.Kill()
	killed := time.Now()
	if free := c.stage.places(t, "al"); free > inFlight/2 {
		t.Errorf("%d places are free at once", free)
	}
	c.stage.awaitPlaces(t, "al", inFlight)
	took := time.Since(killed)
	t.Logf("all places are free %v after the Envoy was killed", took)
	if took > 2*time.Second {
		t.Errorf("it took %v, want 2 s", took)
	}
	clients.Wait()
}

// beside lets a test of the short tier run beside others. In the long tier a test has the machine to itself.
func beside(t *testing.T) {
	t.Helper()
	if !long {
		t.Parallel()
	}
}

// A crowd are clients that send one request after the other.
type crowd struct {
	left   float64 // part of the requests whose clients leave within 3 ms
	resets float64 // part of the requests that the backend resets

	stage *stage
	// How requests ended.
	passed, denied, broken, gone atomic.Int64
}

func (c *crowd) play(t *testing.T) {
	t.Helper()
	c.stage = play(t, sixteen, c.answer)
	more := func() bool { return c.denied.Load() == 0 || c.passed.Load()+c.broken.Load() < 500 }
	if long {
		end := time.Now().Add(time.Minute)
		more = func() bool { return time.Now().Before(end) }
	}
	var clients sync.WaitGroup
	for range crowdSize {
		clients.Go(func() {
			for more() && c.ask(t) {
			}
		})
	}
	clients.Wait()
	c.stage.awaitPlaces(t, "al", inFlight)
	c.stage.envoy.Kill() // its log is whole
	c.settle(t)
}

// answer holds a request for 50 to 500 ms, or a tenth of it.
func (c *crowd) answer(_ http.ResponseWriter, r *http.Request) {
	held := time.Duration(rand.Int64N(450)+50) * time.Millisecond
	if !long {
		held /= 10
	}
	timer := time.NewTimer(held)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	if rand.Float64() < c.resets {
		panic(http.ErrAbortHandler)
	}
}

// ask sends a request, and reports whether it ended as one may.
func (c *crowd) ask(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if rand.Float64() < c.left {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(3*time.Millisecond))))
	}
	defer cancel()
	switch status, err := c.stage.get(ctx, "al", "/"); {
	case errors.Is(err, context.DeadlineExceeded):
		c.gone.Add(1)
		pause()
	case status == http.StatusOK && err == nil:
		c.passed.Add(1)
	case status == http.StatusServiceUnavailable && c.resets > 0:
		c.broken.Add(1)
	case status == http.StatusTooManyRequests:
		c.denied.Add(1)
		pause()
	default:
		t.Errorf("the answer is %d, %v", status, err)
		return false
	}
	return true
}

// pause is the time after which a client tries again.
func pause() { time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) }

// settle holds Envoy's log, and what the backend had, against the limit.
func (c *crowd) settle(t *testing.T) {
	t.Helper()
	most, used := overlap(c.stage.streamsOfEnvoy(t))
	_, top := c.stage.held()
	t.Logf("%d passed, %d denied, %d reset by the backend, %d left; %d of Envoy's streams at once, %d at the backend; %.1f %% of %d places used",
		c.passed.Load(), c.denied.Load(), c.broken.Load(), c.gone.Load(), most, top, 100*used, inFlight)
	if most > inFlight {
		t.Errorf("Envoy had %d streams at once, want at most %d", most, inFlight)
	}
	if c.left == 0 && top > inFlight { // else a request ends at the backend a moment after Envoy's stream
		t.Errorf("the backend had %d requests at once, want at most %d", top, inFlight)
	}
	if long && used < 0.97 {
		t.Errorf("%.1f %% of the places were used, want 97 %%", 100*used)
	}
}

// A span is the time between the start of a request to the backend and the end of its stream, in microseconds.
type span struct{ from, to int64 }

// streamsOfEnvoy returns those of Envoy's access log that reached the backend.
func (s *stage) streamsOfEnvoy(t *testing.T) []span {
	t.Helper()
	file, err := os.Open(s.accessLog)
	must.OK(t, err)
	defer file.Close()
	var streams []span
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var code, sec, micros, after, endSec, endMicros int64
		var flags string
		// One that did not reach it has "-" there.
		if n, _ := fmt.Sscanf(lines.Text(), "%d %s %d.%d %d %d.%d", &code, &flags, &sec, &micros, &after, &endSec, &endMicros); n == 7 {
			streams = append(streams, span{sec*1e6 + micros + after, endSec*1e6 + endMicros})
		}
	}
	must.OK(t, lines.Err())
	return streams
}

// overlap returns the most spans at once, and which part of the places they used from the first moment at which all
// were to the last.
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
		return a.by - b.by // at one moment, ends first
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
