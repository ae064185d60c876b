package store

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDistantStoreWait sends requests to a distant store. They wait for the next batch, a tripPart
// later at most, not for a round trip of the others.
func TestDistantStoreWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trip = 80 * time.Millisecond
		w := newDistantWorld(t, trip)
		w.start(t)
		mean, longest, _ := w.send()
		if most := trip + 2*tripPart; longest > most {
			t.Errorf("requests took %v on average and %v at most, want %v at most", mean, longest, most)
		}
	})
}

// TestRecoveryWait has a distant store recover while 600 counters get hits. Until these are synced,
// the fallback decides, and requests do not wait for more than some round trips. The store syncs 166
// counters in a round trip, in which 48 get hits, so each sync leaves clearly fewer than the one before.
func TestRecoveryWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trip, counters = 80 * time.Millisecond, 600
		w := newDistantWorld(t, trip)
		w.start(t)
		w.unreachable.Store(true)
		_ = w.conn.Load().Close()
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		var longest atomic.Int64
		for n := range counters {
			go func() {
				for time.Sleep(time.Duration(n) * time.Second / counters); ctx.Err() == nil; time.Sleep(time.Second) {
					if took := int64(w.request(uint64(n + 1))); took > longest.Load() {
						longest.Store(took)
					}
				}
			}()
		}
		time.Sleep(time.Second)
		w.unreachable.Store(false)
		start := time.Now()
		w.Await(t.Context())
		t.Logf("up after %v", time.Since(start))
		time.Sleep(time.Second)
		stop()
		time.Sleep(time.Second)
		if got := time.Duration(longest.Load()); got > 3*trip { // 6 if the first sync let requests wait
			t.Errorf("a request waited for %v, want %v at most", got, 3*trip)
		}
	})
}
