package blocks_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// patient are arguments with which a busy machine causes no outage.
var patient = []string{"--store-timeout", "1m", "--store-dial-timeout", "1m", "--store-fallback", "error"}

// commands returns the number of commands that the store has executed, including those of scripts.
func commands(s *storetest.Server) (n int) {
	for line := range strings.Lines(s.Must("INFO", "commandstats")) {
		_, rest, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		count, _ := strconv.Atoi(calls)
		n += count
	}
	return n
}

// TestLimitsAreExact sends requests without faults. No window exceeds its limit. Of each hot
// counter, at least one window admits 99 % of the limit, and in at least one period a request costs
// at most a tenth of a command: a busy machine can delay this, but not prevent it. With
// SLUICE_EFFORT=100 the test sends 10 million requests, or as many as it can before the deadline of `go
// test`, and expects 99 % of all admissible hits.
func TestLimitsAreExact(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), tenants, suite.Patience, patient...)
	f.load(t, 3)
	cheapest, executed, sent := 1.0, commands(store), f.requests.Load()
	suite.Eventually(t, "full windows, and a period with few commands", func() bool {
		if now := f.requests.Load(); now-sent >= 2000 {
			c := commands(store)
			cheapest = min(cheapest, float64(c-executed)/float64(now-sent))
			executed, sent = c, now
		}
		for i, one := range f.tenants {
			if one.hot && f.fullest(i) < one.limit*99/100 {
				return false
			}
		}
		return cheapest <= 0.1
	})
	t.Logf("%.4f commands per request in the cheapest period", cheapest)
	if long(t) {
		deadline, ok := t.Deadline()
		start := time.Now()
		for f.requests.Load() < 10_000_000 && (!ok || time.Until(deadline) > time.Minute) {
			f.await(t, 1)
		}
		seconds := time.Since(start).Seconds()
		f.stop()
		t.Logf("%d requests in %.0f s; %.4f commands per request", f.requests.Load(), seconds, float64(commands(store)-executed)/float64(f.requests.Load()-sent))
		for i, one := range f.tenants {
			if admitted, admissible := f.share(i); one.hot {
				t.Logf("%s: %d of %d admissible hits admitted", one.name, admitted, admissible)
				if admitted < admissible*99/100 {
					t.Errorf("%s: less than 99 %%", one.name)
				}
			}
		}
	}
	f.stop()
	f.verify(t, f.exact)
	if n := f.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// TestNoHitIsLost floods one replica with requests on a counter with a long window, and then stops.
// Another replica gets all the hits that are left: the first returns those of its blocks.
func TestNoHitIsLost(t *testing.T) {
	t.Parallel()
	one := tenant{name: "flooded", limit: 20_000, window: time.Hour, weight: 1, fields: ", count_refused: false"}
	window.AwaitHour(t)
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), []tenant{one}, suite.Patience, patient...)
	f.single = true
	stop := f.load(t, 8, 0)
	suite.Eventually(t, "half of the limit is used", func() bool {
		admitted, _ := f.ledgers[0].total()
		return admitted > one.limit/2
	})
	stop()
	f.load(t, 2, 1)
	suite.Eventually(t, "the other replica has admitted the rest", func() bool {
		admitted, _ := f.ledgers[0].total()
		return admitted >= one.limit
	})
	f.stop()
	f.verify(t, f.exact)
}

// TestFloodStarvesNoReplica floods a counter at one replica, with much more than its limit. A client
// of another replica that sends one request at a time is still admitted.
func TestFloodStarvesNoReplica(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), []tenant{{name: "flooded", limit: 2000, window: time.Second, weight: 1}}, suite.Patience, patient...)
	f.load(t, 16, 0)
	won := 0
	suite.Eventually(t, "100 requests at the other replica are admitted", func() bool {
		for range 20 {
			if admitted, _ := f.request(t.Context(), 1, 0, 1); admitted {
				won++
			}
		}
		return won >= 100
	})
	f.stop()
	f.verify(t, f.exact)
}
