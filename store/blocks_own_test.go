package store

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// The only replica never denies a request that fits into the limit because its own block has unused hits.
func TestOwnBlockDeniesNothing(t *testing.T) {
	for name, p := range map[string]*limiter.Policy{
		"fixed window, count_refused": {Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow, CountRefused: true},
		"fixed window":                {Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow},
		"sliding window":              {Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Hour, SubWindows: 10},
		"bucket":                      {Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: 4 * time.Second},
	} {
		for _, together := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
				r, c := w.replicas[0], &caller{}
				charges := []limiter.Charge{chargeOn(1, p)}
				if together { // with a limit that never has a block
					charges = append(charges, chargeOn(2, &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 2000, Window: time.Hour}))
				}
				bucket := isBucket(p)
				for n := 0; n < 550 || r.unused() < 30; n++ {
					time.Sleep(4 * time.Millisecond)
					r.requestAll(l, charges[:1]...)
					if synctest.Wait(); n > 800 {
						t.Fatalf("%s: no block", name)
					}
				}
				peek := charges[0]
				peek.Hits = 0
				must.OK(t, c.decide(r.store, peek))
				unused, left := uint64(r.unused()), c.b.Decisions[0].Remaining
				charges[0].Hits = left + unused
				must.OK(t, c.decide(r.store, charges...))
				if d := c.b.Decisions[0]; c.b.Denied || d.Charged != left+unused || r.unused() > 0 {
					t.Errorf("%s, together %v: with %d hits left and %d unused, a request of all was denied: %v, %d hits charged, %d unused", name, together, left, unused, c.b.Denied, d.Charged, r.unused())
				}
				charges[0].Hits = 1
				if must.OK(t, c.decide(r.store, charges...)); !c.b.Denied && !bucket {
					t.Errorf("%s, together %v: a request beyond the limit was admitted", name, together)
				}
			})
		}
	}
}

// A request that the store denies gives its part of a block back.
func TestDeniedRequestGivesItsBlockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, c := w.replicas[0], &caller{}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 40)
		unused := r.unused()
		charge := oneHit(1, p)
		charge.Hits = 1001
		must.OK(t, c.decide(r.store, charge))
		if d := c.b.Decisions[0]; !c.b.Denied || r.unused() != unused || int(d.Before) != w.total() {
			t.Errorf("denied %v, %d of %d unused hits left, %d hits before, want %d", c.b.Denied, r.unused(), unused, d.Before, w.total())
		}
		time.Sleep(time.Second)
		if used := r.usedBy(p); used != w.total() {
			t.Errorf("the store has %d hits, want the %d admitted ones", used, w.total())
		}
	})
}

// A request with two charges on a counter admits nothing that the store has not counted, although one of
// them is denied and gives its part of a block back.
func TestBlockOfACounterWithTwoCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, c := w.replicas[0], &caller{}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 40)
		unused := r.unused()
		peek := oneHit(1, p)
		peek.Hits = 0
		must.OK(t, c.decide(r.store, peek))
		large, small := oneHit(1, p), oneHit(1, p)
		large.Hits, small.Hits, small.Group = 1001, c.b.Decisions[0].Remaining+uint64(unused), 1
		before := r.usedBy(p)
		must.OK(t, c.decide(r.store, large, small))
		charged := int(c.b.Decisions[1].Charged)
		if counted := r.usedBy(p) - before + unused - r.unused(); charged != counted {
			t.Errorf("%d hits were admitted, and %d counted", charged, counted)
		}
	})
}

// Hits of a block that ended before the store decided their request are charged to the store soon.
func TestOwnHitsOfAnEndedBlockAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldAt(t, 1, time.Millisecond, Deny, nil)
		r, c := w.replicas[0], &caller{}
		p := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 100_000, Window: 10 * time.Second, SubWindows: 10}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		sent := 0
		for time.Until(time.Now().Truncate(time.Second).Add(time.Second)) > 40*time.Millisecond {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
			sent++
		}
		synctest.Wait()
		unused := r.unused()
		var slow atomic.Bool
		slow.Store(true)
		w.host.OnCommand(func(string, [][]byte, []byte) {
			if slow.CompareAndSwap(true, false) {
				time.Sleep(100 * time.Millisecond)
			}
		})
		charge := oneHit(1, p)
		charge.Hits = uint64(unused) + 50
		must.OK(t, c.decide(r.store, charge))
		if c.b.Denied || w.hitsOf(blockLost) != uint64(unused) || unused == 0 {
			t.Fatalf("denied %v, %d of %d unused hits ended", c.b.Denied, w.hitsOf(blockLost), unused)
		}
		time.Sleep(time.Second)
		if used, want := r.usedBy(p), sent+2*unused+50; used != want {
			t.Errorf("the store has %d hits, want %d: the ended ones in both sub-windows", used, want)
		}
	})
}

// The same, if the next block has taken the place of the ended one meanwhile.
func TestOwnHitsOfAReplacedBlockAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldAt(t, 1, time.Millisecond, Deny, nil)
		r, c := w.replicas[0], &caller{}
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}
		w.fill(p, 40)
		h := r.store.blocks.counters()[0]
		for n := 0; h.balances[0].unused() < 20 || h.balances[1].unused() > 0; n++ {
			time.Sleep(time.Millisecond)
			if r.request(p, 1); n > 5000 {
				t.Fatal("the first balance is never the only one")
			}
			synctest.Wait()
		}
		lost := w.hitsOf(blockLost)
		var slow atomic.Bool
		slow.Store(true)
		w.host.OnCommand(func(string, [][]byte, []byte) {
			if slow.CompareAndSwap(true, false) {
				time.Sleep(time.Duration(h.balances[0].until.Load()) - r.store.blocks.elapsed() + 5*time.Millisecond)
			}
		})
		for n := 0; !h.acquiring.Load(); n++ {
			time.Sleep(time.Millisecond)
			if r.request(p, 1); n > 200 {
				t.Fatal("no block is requested")
			}
		}
		unused := r.unused()
		charge := oneHit(1, p)
		charge.Hits = uint64(unused) + 50
		must.OK(t, c.decide(r.store, charge))
		if lost = w.hitsOf(blockLost) - lost; c.b.Denied || lost != uint64(unused) || unused == 0 {
			t.Fatalf("denied %v, %d of %d unused hits ended", c.b.Denied, lost, unused)
		}
	})
}

// An outage begins after a denied request has given its part of a block back: with the fallback [Local], the
// only replica admits the limit and no more.
func TestDeniedRequestBeforeAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldWith(t, 1, time.Millisecond, Local)
		r, c := w.replicas[0], &caller{}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 40)
		time.Sleep(2 * sweepBlocks)
		charge := oneHit(1, p)
		charge.Hits = 1001
		must.OK(t, c.decide(r.store, charge))
		if !c.b.Denied {
			t.Fatal("a request beyond the limit was admitted")
		}
		w.unreachable.Store(true)
		r.cut()
		synctest.Wait()
		for range 1500 {
			r.request(p, 1)
		}
		synctest.Wait()
		if n := w.total(); n > 1000 {
			t.Errorf("%d hits were admitted, want at most 1000", n)
		}
	})
}
