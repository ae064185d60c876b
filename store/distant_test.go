package store

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A distantWorld is a store at a distance, in simulated time.
type distantWorld struct {
	*Store

	host        *luahost.Server
	conn        atomic.Pointer[luahost.SlowConn] // the latest
	unreachable atomic.Bool
}

func newDistantWorld(t *testing.T, trip time.Duration) *distantWorld {
	t.Helper()
	w, l := &distantWorld{host: luahost.NewServer()}, make(luahost.Memory)
	go func() { _ = w.host.Serve(l) }()
	t.Cleanup(func() { close(l) })
	table, err := limiter.New(limiter.Options{Bytes: 1 << 24}) // a small one takes long to find room for hundreds of counters
	must.OK(t, err)
	w.Store = newStore(t, Options{
		Table: table,
		at:    func() limiter.Time { return limiter.Time(time.Now().UnixNano()) }, Timeout: time.Second, DialTimeout: time.Second, Fallback: Local,
		Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
			if w.unreachable.Load() {
				return nil, net.ErrClosed
			}
			c := l.Dial(trip)
			w.conn.Store(c)
			return c, nil
		}},
	})
	return w
}

// start starts the store, and waits until it is used.
func (w *distantWorld) start(t *testing.T) {
	t.Helper()
	runUntilEnd(t, w.Store)
	if !w.Await(t.Context()) {
		t.Fatal("no connection")
	}
}

// request sends a request, and returns how long it took.
func (w *distantWorld) request(n uint64) time.Duration {
	var c caller
	start := time.Now()
	_ = c.decide(w.Store, oneHit(n, hugeFixedWindow))
	return time.Since(start)
}

// send sends a request a millisecond for a second. It returns the mean and the longest time that they
// took, and the largest number of batches in flight after the first half.
func (w *distantWorld) send() (mean, longest time.Duration, inFlight int) {
	sh, total, most := w.main.shardOf(0), atomic.Int64{}, atomic.Int64{}
	for n := range 1000 {
		go func() {
			took := int64(w.request(uint64(n%10) + 1))
			total.Add(took)
			if took > most.Load() {
				most.Store(took)
			}
		}()
		time.Sleep(time.Millisecond)
		sh.mu.Lock()
		if n >= 500 {
			inFlight = max(inFlight, sh.inFlight)
		}
		sh.mu.Unlock()
	}
	time.Sleep(time.Second)
	return time.Duration(total.Load() / 1000), time.Duration(most.Load()), inFlight
}

// TestDistantStoreInFlight counts the batches in flight to a distant store. A store that was busy when
// it was connected gets more of them only until the first reply.
func TestDistantStoreInFlight(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const trip = 80 * time.Millisecond
			w := newDistantWorld(t, trip)
			var slow atomic.Bool
			slow.Store(busy)
			w.host.OnCommand(func(string, [][]byte, []byte) {
				if slow.Load() {
					time.Sleep(200 * time.Millisecond)
				}
			})
			w.start(t)
			slow.Store(false)
			if _, _, n := w.send(); n != int(trip/tripPart) {
				t.Errorf("busy %v: up to %d batches in flight, want %d", busy, n, trip/tripPart)
			}
		})
	}
}

// TestManyCountersAreSynced has more unsynced hits than are taken from the ledger at once. The prober
// syncs them all while the store is used.
func TestManyCountersAreSynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newDistantWorld(t, time.Millisecond)
		w.start(t)
		at := limiter.Time(time.Now().UnixNano())
		for n := range uint64(maxRemoved + 1) {
			b := limiter.Batch{Charges: []limiter.Charge{oneHit(n+1, hugeFixedWindow)}}
			if err := w.fallBack(at, &b); err != nil {
				t.Fatal(err)
			}
			w.main.recordUnsynced(Local, at, &b, 0, script.AppendName(nil, at, hugeFixedWindow, nameOf("s1", &b.Charges[0])), "", 0, &caller{})
		}
		w.main.requestSync(0)
		time.Sleep(5 * time.Second)
		if n := w.unsyncedCounters(); n != 0 {
			t.Errorf("hits of %d counters are not synced", n)
		}
	})
}

// TestSendersWaitForRoom has more senders and full batches than may be in flight.
func TestSendersWaitForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sh := newIdleShard(t)
		sh.shortestTrip.Store(int64(80 * time.Millisecond))
		for range 2 * maxInFlight {
			enqueueRequest(sh, script.MaxRun, false)
		}
		for n := range maxInFlight {
			go sh.nextBatch(n, nil)
		}
		time.Sleep(time.Second) // far more than 16 tripParts
		synctest.Wait()
		sh.mu.Lock()
		if sh.inFlight != 16 {
			t.Errorf("%d batches in flight, want 16", sh.inFlight)
		}
		sh.closed = true
		sh.wake.Broadcast()
		sh.mu.Unlock()
	})
}
