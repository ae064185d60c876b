package store

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// minSample is the minimum estimate of a run that is measured: the time of shorter ones is
	// mostly overhead.
	minSample = 100 * time.Microsecond
	// maxSlowdown caps the ratio of measured to estimated time. Whatever durations a server
	// reports, the bound of a run stays above 62 µs by estimate.
	maxSlowdown = 16
	// maxSlowdownByRoundTrip caps the ratio if only round trips were measured, which include
	// queueing at the server.
	maxSlowdownByRoundTrip = 4
)

// A slowness is the ratio of measured to estimated time of scripts: see package script for the
// estimates. It is the median of the recent runs, so three slow runs change nothing, and after four
// others they are forgotten.
type slowness struct {
	percent atomic.Int64 // 0 means 100

	mu     sync.Mutex
	recent [7]float64 // 0 for missing runs
	next   int
}

// add adds a run with the time that the server reports, which is capped by the round trip, and its
// estimate. It reports whether the run took longer than estimated.
func (s *slowness) add(took, trip, estimate time.Duration) (slower bool) {
	if took = min(took, trip); took <= 0 || estimate < minSample {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[s.next] = float64(took) / float64(estimate)
	s.next = (s.next + 1) % len(s.recent)
	sorted := s.recent
	slices.Sort(sorted[:])
	s.percent.Store(int64(100 * min(max(sorted[len(sorted)/2], 1), maxSlowdown)))
	return took > estimate
}

// bound returns the estimate of a run that takes the server as long as limit.
func (s *slowness) bound(limit time.Duration) time.Duration {
	return limit * 100 / time.Duration(max(s.percent.Load(), 100))
}

// measuredCharges is the number of charges of a measurement. They are on new counters of
// measuredPolicy, whose estimate has the smallest margin.
const measuredCharges = 24

var measuredPolicy = &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Second}

// measure measures the speed of the server before a large request comes, and reports whether it is
// slower than estimated. A probe took shortTrip just before. If the server does not report how long
// a run takes, the difference between the round trips is used. An error has no effect: the next
// probe fails, too. The counters expire after two seconds.
func (sh *shard) measure(c *redis.Conn, shortTrip time.Duration) (slower bool) {
	name := sh.probeName()
	if name == nil {
		return false
	}
	sent := sh.options.elapsed()
	at := sh.time(sh.options.now())
	var run script.Run
	run.Clear(sh.options.storeTime())
	calls := make([]script.Call, measuredCharges)
	for i := range calls {
		b := &limiter.Batch{Charges: []limiter.Charge{{Policy: measuredPolicy, Hits: 1}}}
		calls[i].Encode(at, b, [][]byte{fmt.Appendf(nil, "%s_%d_%d_", name, at, i)}, 0)
		run.Add(&calls[i])
	}
	if script.DecideScript.Run(c, &run); run.Err != nil {
		return false
	}
	run.Read()
	trip := sh.options.elapsed() - sent
	cost := run.Cost()
	sh.learnOffset(run.Reply.Now, sent, trip)
	return sh.slowness.add(cmp.Or(run.Reply.Duration, min(trip-shortTrip, maxSlowdownByRoundTrip*cost)), trip, cost)
}

// measureAgain measures the speed of the server. One measurement suffices if the server is fast.
func (sh *shard) measureAgain(c *redis.Conn, shortTrip time.Duration) {
	if sh.toMeasure--; !sh.measure(c, shortTrip) {
		sh.toMeasure = 0
	}
}
