package store

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A denial of a bucket is repeated for denyFor only: later, the bucket has drained.
func TestBlocksRepeatNoOldDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 1, 10*time.Millisecond), newBlockLedger()
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}
		r := w.replicas[0]
		known := func() bool {
			hot := r.store.blocks.counters()
			return len(hot) > 0 && hot[0].denial.Load() != nil
		}
		for n := 0; n < 8000 || !known(); n++ {
			if n == 20_000 {
				t.Fatal("no denial is known")
			}
			time.Sleep(time.Millisecond / 2)
			r.requestAll(l, chargeOn(1, p))
		}
		time.Sleep(400 * time.Millisecond)
		before := l.admittedOf(1)
		for range 200 {
			time.Sleep(100 * time.Microsecond)
			r.requestAll(l, chargeOn(1, p))
		}
		time.Sleep(50 * time.Millisecond)
		if n := l.admittedOf(1) - before; n < 190 {
			t.Errorf("%d of 200 hits admitted by a bucket with a room of 400, want all", n)
		}
	})
}

// A repeated denial has the retry-after and the reset of the store.
func TestRetryAfterOfARepeatedDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 10, Burst: 10, Window: time.Minute}
		off := p.Clone(nil)
		off.NoBlocks = true
		r, c := w.replicas[0], caller{}
		local := 0
		for range 300 {
			time.Sleep(20 * time.Millisecond)
			must.OK(t, c.decide(r.store, chargeOn(1, &off)))
			want := c.b.Decisions[0]
			done, err := c.start(r.store, 0, chargeOn(1, p))
			if !done {
				err = <-c.decided
			}
			must.OK(t, err)
			if got := c.b.Decisions[0]; done && want.Over && got.Over {
				local++
				if diff := got.RetryAfter - want.RetryAfter; diff > 100*time.Millisecond || diff < -100*time.Millisecond {
					t.Fatalf("retry after %v, reset %v, want %v, %v", got.RetryAfter, got.Reset, want.RetryAfter, want.Reset)
				}
			}
		}
		if local == 0 {
			t.Error("no denial was repeated")
		}
	})
}

// Requests that are decided from blocks allocate nothing, whatever their limits.
func TestBlocksOfAllKindsAllocateNothing(t *testing.T) {
	for name, policies := range map[string][]*limiter.Policy{
		"ring":   {{Algorithm: limiter.SlidingWindow, Limit: 1 << 20, SubWindows: 10, Window: time.Hour}},
		"bucket": {{Algorithm: limiter.TokenBucket, Limit: 1 << 20, Burst: 1 << 20, Window: time.Second}},
		"several": {
			{Algorithm: limiter.SlidingWindow, Limit: 1 << 20, SubWindows: 10, Window: time.Hour},
			{Algorithm: limiter.LeakyBucket, Limit: 1 << 20, Slack: 1 << 20, Window: time.Second},
			{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
				r := w.replicas[0]
				var charges []limiter.Charge
				for i, p := range policies {
					charges = append(charges, chargeOn(uint64(i+1), p))
				}
				for range 3000 {
					time.Sleep(time.Millisecond)
					r.requestAll(l, charges...)
				}
				synctest.Wait()
				for i := range 100 { // away from the next block
					time.Sleep(time.Millisecond)
					r.requestAll(l, charges...)
					enough := i > 5
					for _, h := range r.store.blocks.counters() {
						x := h.balanceWith(1, r.store.blocks.moment(limiter.Time(time.Now().UnixNano())))
						enough = enough && x != nil && x.unused() > x.half.Load()+20 && !h.acquiring.Load()
					}
					if enough {
						break
					}
				}
				c := caller{clock: time.Now}
				if done, err := c.start(r.store, 0, charges...); err != nil || !done {
					t.Fatal("not decided from blocks", err)
				}
				now := limiter.Time(time.Now().UnixNano())
				least := math.Inf(1) // the race detector empties pools at random
				for range 10 {
					least = min(least, testing.AllocsPerRun(1, func() {
						if done, err := r.store.Decide(now, &c.b, c.names, &c); !done || err != nil {
							t.Error("not decided from the block")
						}
					}))
				}
				if least > 0 {
					t.Errorf("%v allocations for a request from blocks", least)
				}
			})
		})
	}
}

// Two limits of a descriptor, one of them exhausted, the other one too small for blocks. Without
// blocks the denial cache decides these: see denials.go.
func TestDeniedGroupWithASmallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, blocks := range []bool{false, true} {
			w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
			hour := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 100, Window: limiter.MaxWindow, NoBlocks: !blocks}
			second := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Second, NoBlocks: !blocks}
			commands := int64(0)
			for n := range 8000 {
				if n == 6000 {
					commands = w.commands.Load()
				}
				time.Sleep(5 * time.Millisecond)
				w.replicas[0].requestAll(l, chargeOn(1, hour), chargeOn(2, second))
			}
			commands = w.commands.Load() - commands
			t.Logf("blocks %v: %d commands for 2000 denied requests", blocks, commands)
			if commands > 400 {
				t.Errorf("blocks %v: %d commands for 2000 requests that are denied for hours", blocks, commands)
			}
			w.replicas[0].stop()
		}
	})
}

// A counter never has blocks if each of its requests also has a cold counter. It becomes hot twice at
// most, and never if it follows the cold one.
func TestHotCounterWithAColdOne(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
			p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
			seen, most := map[*hotCounter]bool{}, 2
			for n := range uint64(5_000) {
				time.Sleep(time.Millisecond)
				charges := []limiter.Charge{chargeOn(1, p), chargeOn(100+n, p)}
				if after {
					slices.Reverse(charges)
					most = 0
				}
				w.replicas[0].requestAll(l, charges...)
				for _, h := range w.replicas[0].store.blocks.counters() {
					seen[h] = true
				}
			}
			if len(seen) > most {
				t.Errorf("after the cold one %v: the counter became hot %d times in 5 s, want at most %d", after, len(seen), most)
			}
		})
	}
}

// One replica stops sending requests while another one has a block that was charged later. Then the
// other one uses its block, and the store decides the rest: if the first one returned its hits, they
// would exceed the limit. The test sets the demand.
func TestBlocksOfABucketAreNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 2, time.Millisecond), newBlockLedger()
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 4000, Window: time.Second}
		off := p.Clone(nil)
		off.NoBlocks = true
		byStore := func(hits uint64) limiter.Charge {
			c := chargeOn(1, &off)
			c.Hits = hits
			return c
		}
		idle, busy := w.replicas[0], w.replicas[1]
		for range 40 { // both are hot
			time.Sleep(10 * time.Millisecond)
			idle.requestAll(l, chargeOn(1, p))
			busy.requestAll(l, chargeOn(1, p))
		}
		time.Sleep(50 * time.Millisecond)
		acquire := func(r *blockReplica) {
			r.requestAll(l, byStore(1)) // it learns the level
			time.Sleep(3 * time.Millisecond)
			r.store.blocks.counters()[0].demand.Add(400)
			for range 20 {
				if r.unused() > 100 {
					return
				}
				r.requestAll(l, chargeOn(1, p))
				time.Sleep(3 * time.Millisecond)
			}
		}
		start := time.Now()
		idle.requestAll(l, byStore(600))
		acquire(idle)
		time.Sleep(time.Until(start.Add(140 * time.Millisecond)))
		acquire(busy)
		if idle.unused() < 300 || busy.unused() < 300 {
			t.Fatal("the blocks are too small")
		}
		for time.Since(start) < 880*time.Millisecond {
			time.Sleep(40 * time.Millisecond)
			busy.store.blocks.counters()[0].demand.Add(20) // of requests that other limits deny
			busy.requestAll(l, chargeOn(1, p))
		}
		end := time.Time{}
		for i := range 2 {
			if b := busy.store.blocks.counters()[0].balances[i]; b.unused() > 0 {
				end = time.Unix(0, b.end.Load())
			}
		}
		time.Sleep(time.Until(end.Add(-125 * time.Millisecond)))
		for range 450 {
			idle.requestAll(l, byStore(10))
		}
		time.Sleep(5 * time.Millisecond)
		before := l.admittedOf(1)
		for n := busy.unused(); n > 0; n-- {
			busy.requestAll(l, chargeOn(1, p))
		}
		t.Log(l.admittedOf(1)-before, "hits of the block used")
		time.Sleep(time.Second)
		l.check(t)
	})
}

// Requests that another limit of their group denies use no hits of this one, and so give a replica
// no reason to hold hits that another one needs.
func TestDemandOfDeniedRequests(t *testing.T) {
	for name, p := range map[string]*limiter.Policy{
		"bucket": {Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second},
		"window": {Algorithm: limiter.FixedWindow, Limit: 5000, Window: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for _, attack := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w, l := newBlockWorld(t, 2, time.Millisecond), newBlockLedger()
					exhausted := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 10, Window: limiter.MaxWindow}
					time.Sleep(time.Until(time.Now().Truncate(5 * time.Second).Add(5 * time.Second)))
					wanted := 0
					for n := range 20_000 {
						time.Sleep(time.Millisecond)
						if attack {
							for range 3 {
								w.replicas[0].requestAll(l, chargeOn(1, p), chargeOn(2, exhausted))
							}
						}
						if n%20 == 0 {
							wanted++
							w.replicas[0].requestAll(l, chargeOn(1, p))
						}
						if n%20 < 18 {
							wanted++
							w.replicas[1].requestAll(l, chargeOn(1, p))
						}
					}
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					n := l.admittedOf(1)
					t.Logf("attack %v: %d of %d hits admitted", attack, n, wanted)
					if n < wanted*99/100 {
						t.Errorf("attack %v: %d of %d hits admitted, which are 95 %% of the limit", attack, n, wanted)
					}
				})
			}
		})
	}
}
