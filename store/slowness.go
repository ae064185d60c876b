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
	// minSample is the least estimate of a run whose time says something of the server: shorter ones consist of what a run
	// takes by itself.
	minSample = 100 * time.Microsecond
	// maxSlowdown is how many times slower than estimated a server is taken to be at most. So no server, whatever it says of its
	// time, makes runs shorter than 62 µs.
	maxSlowdown = 16
	// maxSlowdownByRoundTrip is the same where only round trips tell: what waits before the server counts there, too.
	maxSlowdownByRoundTrip = 4
)

// A slowness is how many times longer than estimated a server takes for scripts: see package script for the estimates. It is the
// median of the last runs, so three slow runs change nothing, and after four others they are forgotten.
type slowness struct {
	percent atomic.Int64 // 0 stands for 100

	mu     sync.Mutex
	recent [7]float64 // 0 if there were fewer runs
	next   int
}

// add notes a run that took some time by the server's own words, and a round trip, which took no less. It reports whether the run
// took longer than estimated.
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

// bound returns the estimate of what takes the server as long as most.
func (s *slowness) bound(most time.Duration) time.Duration {
	return most * 100 / time.Duration(max(s.percent.Load(), 100))
}

// measured is the number of charges of a measurement, on new counters of a policy whose estimate has the least margin.
const measured = 24

var measuredPolicy = &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Second}

// measure learns how fast the server is before a large request comes, and reports whether it is slower than estimated. A probe took
// shortTrip just before. If the server does not tell how long a run takes, the difference of the two trips is taken for it. An
// error here has no effect: the next probe fails, too. The counters expire two seconds later.
func (sh *shard) measure(c *redis.Conn, shortTrip time.Duration) (slower bool) {
	name := sh.probeName()
	if name == nil {
		return false
	}
	sent := sh.options.Clock()
	at := sh.time(limiter.Time(sent.UnixNano()))
	var run script.Run
	run.Clear(sh.options.storeTime())
	calls := make([]script.Call, measured)
	for i := range calls {
		b := &limiter.Batch{Charges: []limiter.Charge{{Policy: measuredPolicy, Hits: 1}}}
		calls[i].Encode(at, b, [][]byte{fmt.Appendf(nil, "%s_%d_%d_", name, at, i)}, 0)
		run.Add(&calls[i])
	}
	if script.DecideScript.Run(c, &run); run.Err != nil {
		return false
	}
	run.Read()
	trip, cost := sh.options.Clock().Sub(sent), run.Cost()
	return sh.slowness.add(cmp.Or(run.Reply.Took, min(trip-shortTrip, maxSlowdownByRoundTrip*cost)), trip, cost)
}
