package store

import (
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A Store decides charges in Redis or Valkey. Its methods may be called concurrently, while Run
// runs.
type Store struct {
	options       Options
	main          *backend
	perSecond     *backend      // nil if not configured
	singleSlot    bool          // all counters are in one slot
	partBound     time.Duration // script.MaxPart, except in tests
	flushBound    time.Duration // maxFlush, except in tests
	syncBound     time.Duration // maxSync, except in tests
	tryAgainPause time.Duration // the constant, except in tests
	replica       string        // unique name of this replica, which has blocks
	reached       chan struct{} // signals Await that a primary was reached, or the slots changed; holds one element
	foreign       atomic.Int64  // when Log.Foreign was last called, in nanoseconds since 1970

	memory
}

// A memory is what a replica knows about the counters of a store.
type memory struct {
	mirror *limiter.Table // of a Store: Options.Table
	denied deniedCache
	blocks *blocks // nil if not configured
}

// notifyReached wakes Await.
func (s *Store) notifyReached() {
	select {
	case s.reached <- struct{}{}:
	default:
	}
}

// foreignLogInterval is the minimum time between two calls of Log.Foreign.
const foreignLogInterval = 10 * time.Second

// logForeign logs a key that another program wrote.
func (s *Store) logForeign(shard string, why *script.ForeignError) {
	now := clock().UnixNano()
	last := s.foreign.Load()
	if s.options.Log.Foreign != nil && (last == 0 || now-last >= int64(foreignLogInterval)) &&
		s.foreign.CompareAndSwap(last, now) {
		s.options.Log.Foreign(shard, why.Key, why.Err)
	}
}
