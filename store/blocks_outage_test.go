package store

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// usedBy returns the hits that the store has counted, as replica r sees it.
func (r *blockReplica) usedBy(p *limiter.Policy) int {
	r.world.t.Helper()
	var c caller
	peek := oneHit(1, p)
	peek.Hits = 0
	must.OK(r.world.t, c.decide(r.store, peek))
	return int(c.b.Decisions[0].Before)
}

// After a failover the used hits of the newest blocks are charged to the new primary, however long the
// outage was: they still count (docs/blocks.md, "the connection is lost").
func TestUsedHitsAreChargedAfterALongOutage(t *testing.T) {
	for name, p := range map[string]*limiter.Policy{
		"window":         {Algorithm: limiter.FixedWindow, Limit: 4000, Window: limiter.MaxWindow},
		"idle window":    {Algorithm: limiter.FixedWindow, Limit: 4000, Window: limiter.MaxWindow},
		"sliding window": {Algorithm: limiter.SlidingWindow, Limit: 4000, Window: 10 * time.Second, SubWindows: 10},
	} {
		for _, outage := range []time.Duration{100 * time.Millisecond, 4 * time.Second} {
			busy := name != "idle window" // requests go on
			t.Run(name+" "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
					w.lossy = true // hits that are admitted during the outage are those of the block, or denied
					r := w.replicas[0]
					time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
					used := 0
					for range 1500 {
						time.Sleep(time.Millisecond)
						r.requestAll(l, chargeOn(1, p))
						synctest.Wait()
						if hot := r.store.blocks.counters(); len(hot) > 0 && time.Now().UnixMilli()%1000 > 400 {
							h, granted := hot[0], 0
							h.mu.Lock()
							for i := range h.balances {
								granted += int(h.balances[i].granted)
							}
							h.mu.Unlock()
							if used = granted - r.unused(); r.unused() > 0 && used > 50 {
								break
							}
						}
					}
					w.unreachable.Store(true)
					w.loseData()
					for end := time.Now().Add(outage); time.Now().Before(end); {
						if time.Sleep(5 * time.Millisecond); busy {
							r.requestAll(l, chargeOn(1, p))
						}
					}
					w.unreachable.Store(false)
					time.Sleep(time.Second)
					var c caller
					peek := chargeOn(1, p)
					peek.Hits = 0
					must.OK(t, c.decide(r.store, peek))
					if got := int(c.b.Decisions[0].Before); got < used {
						t.Errorf("the new primary has %d hits, want the %d that were used of the last block", got, used)
					}
				})
			})
		}
	}
}

// A replica that ends during an outage charges the used hits of its blocks to the store, which may have
// lost them, as one does that goes on.
func TestStopDuringAFailoverChargesUsedHits(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newBlockWorld(t, 2, time.Millisecond)
			r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
			w.fill(p, 20)
			h := r.store.blocks.counters()[0]
			h.mu.Lock()
			used := int(h.windowOf(h.current.end).granted) - r.unused()
			h.mu.Unlock()
			w.unreachable.Store(true)
			w.loseData()
			for range 10 { // of the block
				r.request(p, 1)
			}
			w.unreachable.Store(false)
			if stop {
				r.stop()
			}
			time.Sleep(2 * time.Second)
			if got := w.replicas[1].usedBy(p); got < used+10 {
				t.Errorf("stopped %v: the new primary has %d hits, want the %d used ones of the newest block", stop, got, used+10)
			}
		})
	}
}

// A store whose replies are late, but regular, is available. The hits of blocks whose reply is late are
// returned, or at least reported as lost.
func TestLateRepliesToBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldWith(t, 2, time.Millisecond, Local)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		w.fill(p, 50)
		var slow atomic.Bool
		w.host.OnCommand(func(name string, _ [][]byte, _ []byte) {
			if slow.Load() && name == "EVALSHA" {
				time.Sleep(450 * time.Millisecond)
			}
		})
		slow.Store(true)
		downs := 0
		for range 20_000 {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
			if !r.store.Up() {
				downs++
			}
		}
		slow.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		used, admitted, lost := w.replicas[1].usedBy(p), w.total(), int(w.hitsOf(blockLost))
		t.Logf("down for %d of 20000 ms; %d hits in the store, %d admitted, %d acquired, %d returned, %d lost, %d unused", downs, used, admitted, w.hitsOf(blockAcquired), w.hitsOf(blockReturned), lost, r.unused())
		if used > admitted+lost+r.unused() {
			t.Errorf("%d hits in the store are neither admitted nor reported as lost", used-admitted-lost-r.unused())
		}
	})
}

// A block whose charge panicked once does not keep its counter from ever having blocks again.
type panickingObserver struct {
	noObserver

	panics atomic.Int64
}

func (o *panickingObserver) Blocks(event string, _ uint64) {
	if event == blockAcquired && o.panics.Add(1) == 1 {
		panic("a bug")
	}
}

func TestPanicWhileABlockIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newBlockWorld(t, 1, time.Millisecond), &panickingObserver{}
		r := w.replicas[0]
		r.store.options.Observer = o
		r.store.options.Panicked = func(any) {}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		for range 5000 {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		if o.panics.Load() == 0 {
			t.Fatal("no panic")
		}
		if o.panics.Load() < 2 {
			t.Error("no block after the panic")
		}
		time.Sleep(3 * time.Second)
		if n := len(r.store.blocks.counters()); n > 0 {
			t.Errorf("%d hot counters after three seconds without requests", n)
		}
	})
}
