package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastSample is the least estimate of a run whose time says something of the server: shorter ones consist of what a run
	// takes by itself.
	leastSample = 100 * time.Microsecond
	// mostSlow is how many times slower than estimated a server is taken to be at most. So no server, whatever it says of its
	// time, makes runs shorter than 62 µs.
	mostSlow = 16
	// mostSlowByTrips is the same where only round trips tell: what waits before the server counts there, too.
	mostSlowByTrips = 4
)

// A slowness is how many times longer than estimated a server takes for scripts: see package script for the estimates. It is the
// median of the last runs, so three slow runs change nothing, and after four others they are forgotten.
type slowness struct {
	percent atomic.Int64 // 0 stands for 100

	mu     sync.Mutex
	recent [7]float64 // 0 if there were fewer runs
	next   int
}

// add notes a run that took some time by the server's own words, and a round trip, which took no less.
func (s *slowness) add(took, trip, estimate time.Duration) {
	if took = min(took, trip); took <= 0 || estimate < leastSample {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[s.next] = float64(took) / float64(estimate)
	s.next = (s.next + 1) % len(s.recent)
	sorted := s.recent
	slices.Sort(sorted[:])
	s.percent.Store(int64(100 * min(max(sorted[len(sorted)/2], 1), mostSlow)))
}

// bound returns the estimate of what takes the server as long as most.
func (s *slowness) bound(most time.Duration) time.Duration {
	return most * 100 / time.Duration(max(s.percent.Load(), 100))
}
