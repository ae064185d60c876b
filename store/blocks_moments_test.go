package store

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A muteConn loses what is written once mute is set, as if the server had lost its power.
type muteConn struct {
	net.Conn

	mute *atomic.Bool
}

func (c muteConn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// At SIGTERM, unused hits are returned, also if a probe is in flight.
func TestStopDuringAProbeReturnsHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, 40*time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		var probed atomic.Bool
		w.fill(p, 40)
		w.host.OnCommand(func(_ string, args [][]byte, _ []byte) {
			if bytes.Contains(bytes.Join(args, nil), []byte("{probe}")) {
				probed.Store(true)
			}
		})
		for !probed.Load() {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		unused, before, lost := r.unused(), w.hitsOf(blockReturned), w.hitsOf(blockLost)
		r.stop()
		if got := int(w.hitsOf(blockReturned) - before); got < unused {
			t.Errorf("%d of %d unused hits were returned, %d counted as lost", got, unused, w.hitsOf(blockLost)-lost)
		}
	})
}

// How often it happens, at random moments.
func TestStopAtAnyMomentReturnsHits(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 40 * time.Millisecond} {
		failed, all := 0, effort.Times(t, 10)
		for n := range all {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorld(t, 1, trip)
				r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
				for end := time.Now().Add(2*time.Second + time.Duration(n)*time.Second/time.Duration(all)); time.Now().Before(end); {
					time.Sleep(time.Millisecond)
					r.request(p, 1)
				}
				unused, before := r.unused(), w.hitsOf(blockReturned)
				r.stop()
				if got := int(w.hitsOf(blockReturned) - before); got < unused {
					failed++
				}
			})
		}
		t.Logf("trip %v: %d of %d replicas returned nothing", trip, failed, all)
		if failed > 0 {
			t.Errorf("trip %v: %d of %d replicas did not return their unused hits at the end", trip, failed, all)
		}
	}
}

// mutable makes the connections of r able to lose what is written.
func (r *blockReplica) mutable() *atomic.Bool {
	mute, dial := new(atomic.Bool), r.store.options.Server.DialContext
	r.store.options.Server.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return muteConn{c, mute}, nil
	}
	r.cut()
	synctest.Wait()
	for !r.store.Up() {
		time.Sleep(time.Millisecond)
	}
	return mute
}

// A block that ended before the outage was noticed, but was charged just before it began, counts.
func TestUsedHitsIfTheTimeoutIsLong(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 3 * time.Second} {
		for name, p := range map[string]*limiter.Policy{
			"sliding window": {Algorithm: limiter.SlidingWindow, Limit: 4000, Window: 100 * time.Second, SubWindows: 100},
		} {
			t.Run(name+" "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, l := newBlockWorld(t, 2, time.Millisecond), newBlockLedger()
					w.lossy = true
					r := w.replicas[0]
					r.store.options.Timeout = timeout
					mute := r.mutable()
					time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
					used := 0
					for used < 50 {
						time.Sleep(time.Millisecond)
						r.requestAll(l, chargeOn(1, p))
						synctest.Wait()
						granted := 0
						for _, h := range r.store.blocks.counters() {
							h.mu.Lock()
							for i := range h.balances {
								granted += int(h.balances[i].granted)
							}
							h.mu.Unlock()
						}
						used = granted - r.unused()
					}
					mute.Store(true)
					died := time.Now()
					for r.store.Up() {
						time.Sleep(time.Millisecond)
						r.requestAll(l, chargeOn(1, p))
					}
					noticed := time.Since(died)
					mute.Store(false)
					w.host.FlushAll()
					time.Sleep(3 * time.Second)
					var c caller
					peek := chargeOn(1, p)
					peek.Hits = 0
					if err := c.decide(w.replicas[1].store, peek); err != nil {
						t.Fatal(err)
					}
					if got := int(c.b.Decisions[0].Before); got < used {
						t.Errorf("the new primary has %d hits, want the %d used ones; the outage was noticed after %v", got, used, noticed)
					}
				})
			})
		}
	}
}

// Whatever the order of replies, a block that was charged before a reset is not used after it.
func TestResetWhileABlockIsCharged(t *testing.T) {
	bad, times := 0, effort.Times(t, 40)
	for n := range times {
		synctest.Test(t, func(t *testing.T) {
			w := newBlockWorld(t, 1, 20*time.Millisecond)
			r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
			w.fill(p, 40)
			h := r.store.blocks.counters()[0]
			for !h.acquiring.Load() {
				time.Sleep(time.Millisecond)
				r.request(p, 1)
			}
			time.Sleep(time.Duration(n%20) * time.Microsecond)
			r.reset(p)
			synctest.Wait()
			unused := r.unused()
			if used := r.usedBy(p); used < unused {
				bad++
			}
		})
	}
	if bad > 0 {
		t.Errorf("%d of %d times the store had fewer hits after a reset than were unused", bad, times)
	}
}
