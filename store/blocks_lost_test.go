package store

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A reset drops the block of its window, also if the store's clock is behind.
func TestResetDropsBlocksWithAStoreBehind(t *testing.T) {
	for _, offset := range []time.Duration{0, -2 * time.Second, 9 * time.Second} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorldAt(t, 1, time.Millisecond, Deny, nil)
				r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: 10 * time.Second}
				w.host.SetOffset(offset)
				time.Sleep(3 * time.Second) // probes learn the offset
				storeNow := func() time.Time { return time.Now().Add(offset) }
				start := storeNow().Truncate(10 * time.Second).Add(20 * time.Second)
				time.Sleep(start.Sub(storeNow()) + 100*time.Millisecond)
				w.fill(p, 60)
				unused, into := r.unused(), storeNow().Sub(start)
				r.reset(p)
				if got := r.unused(); got > 0 {
					t.Errorf("%v into the window by the store's clock (offset %v): %d of %d hits of the block can still be used after the reset", into, r.store.Offset(), got, unused)
				}
			})
		})
	}
}

// A connection that fails while blocks are returned at the end is an outage like any other: used hits
// are charged to the next primary, and all hits are accounted for.
func TestConnectionFailsWhileBlocksAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 2, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 20)
		for range 10 {
			r.request(p, 1)
		}
		h := r.store.blocks.counters()[0]
		h.mu.Lock()
		used := int(h.windowOf(h.current.end).granted) - r.unused()
		h.mu.Unlock()
		var once atomic.Bool
		w.host.OnCommand(func(name string, _ [][]byte, _ []byte) {
			if name == "EVALSHA" && once.CompareAndSwap(false, true) {
				go func() { // a failover
					r.cut()
					w.host.FlushAll()
				}()
				time.Sleep(5 * time.Millisecond)
			}
		})
		r.stop()
		time.Sleep(2 * time.Second)
		if got := w.replicas[1].usedBy(p); got < used {
			t.Errorf("the new primary has %d hits, want the %d used ones of the newest block", got, used)
		}
	})
}

func TestEventsBalanceIfReturningFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 20)
		unused, before := r.unused(), w.hitsOf(blockReturned)+w.hitsOf(blockLost)
		w.host.OnCommand(func(name string, _ [][]byte, _ []byte) {
			if name == "EVALSHA" {
				r.cut()
			}
		})
		r.stop()
		if got := w.hitsOf(blockReturned) + w.hitsOf(blockLost) - before; int(got) != unused {
			t.Errorf("%d of %d unused hits are returned or lost after the end", got, unused)
		}
	})
}

// Counters that become hot during an outage cannot have blocks. They are removed when they are idle.
func TestCountersAreRemovedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		w.lossy = true
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.unreachable.Store(true)
		w.loseData()
		l := newBlockLedger()
		for id := range uint64(3000) {
			for range 6 {
				r.requestAll(l, chargeOn(1+id, p))
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := len(r.store.blocks.counters()); n > 0 {
			t.Errorf("%d hot counters without a block, a minute after their last request", n)
		}
	})
}

// A used block whose counter went idle shortly before the store was lost counts, too.
func TestUsedHitsOfACounterThatWentIdle(t *testing.T) {
	for _, idle := range []time.Duration{300 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(idle.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorld(t, 2, time.Millisecond)
				r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 4000, Window: limiter.MaxWindow}
				w.fill(p, 100)
				for range 30 {
					r.request(p, 1)
				}
				h := r.store.blocks.counters()[0]
				h.mu.Lock()
				used := int(h.windowOf(h.current.end).granted) - r.unused()
				h.mu.Unlock()
				time.Sleep(idle)
				hot := len(r.store.blocks.counters())
				w.loseData()
				time.Sleep(2 * time.Second)
				if got := w.replicas[1].usedBy(p); got < used {
					t.Errorf("the new primary has %d hits, want the %d used ones (%d hot counters when the store was lost)", got, used, hot)
				}
			})
		})
	}
}
