package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// decidesLocally reports whether the store of r decides a charge without waiting.
func (r *blockReplica) decidesLocally(c limiter.Charge) bool {
	own := caller{clock: r.store.options.Clock}
	done, err := own.start(r.store, 0, c)
	must.OK(r.world.t, err)
	if !done {
		must.OK(r.world.t, <-own.decided)
	}
	return done
}

// reset resets the counter of a policy through the store of r.
func (r *blockReplica) reset(p *limiter.Policy) {
	c := oneHit(1, p)
	b := &limiter.Batch{Charges: []limiter.Charge{c}}
	_, err := r.store.Reset(r.world.t.Context(), limiter.Time(time.Now().UnixNano()), b, [][]byte{nameOf("s1", &c)}, 0)
	must.OK(r.world.t, err)
}

// A block ends with its window by the monotonic clock, even if the clock of the machine was set
// back.
func TestBlockEndsIfTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(sweepBlocks / 2) // no sweep follows the end of the window at once
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Minute}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - time.Second)))
		w.fill(p, 20)
		end := time.Now().Truncate(time.Minute).Add(time.Minute)
		for time.Until(end) > 100*time.Millisecond {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		time.Sleep(time.Until(end) - time.Millisecond)
		if !r.decidesLocally(oneHit(1, p)) {
			t.Fatal("not decided from the block")
		}
		r.jump.Store(-int64(time.Second))
		time.Sleep(2 * time.Millisecond) // it is the next minute, but the clock shows the last one
		if r.decidesLocally(oneHit(1, p)) {
			t.Error("decided from the block of the last window")
		}
	})
}

// A refund of unused hits is not sent on another connection than its block: the new primary may not
// have charged them.
func TestBlocksAreNotReturnedToAnotherPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Hour}
		w.fill(p, 10)
		h := r.store.blocks.counters()[0]
		b := h.windowOf(h.current.end)
		refund := r.store.returnRequest(h, b.clear(), h.current.end, b.state.Load())
		w.loseData()
		for !r.store.Up() {
			time.Sleep(time.Millisecond)
		}
		if refund.send(r.store.main.shardOf(0), time.Second) {
			t.Error("the refund was sent to another primary")
		}
	})
}

// Unused hits are returned once: after a while, and at shutdown. Then the store has exactly the
// hits that were admitted.
func TestBlocksAreReturned(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newBlockWorld(t, 2, time.Millisecond)
			p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Hour}
			w.fill(p, 20)
			if stop {
				time.Sleep(10 * time.Millisecond) // no request waits for a reply any more
				w.replicas[0].stop()
			} else {
				time.Sleep(time.Second)
			}
			var c caller
			peek := oneHit(1, p)
			peek.Hits = 0
			must.OK(t, c.decide(w.replicas[1].store, peek))
			if got, want := int(c.b.Decisions[0].Before), w.total(); got != want {
				t.Errorf("stopped %v: the store has %d hits, want the %d that were admitted", stop, got, want)
			}
		})
	}
}

// A replica whose demand has become small does not keep its block.
func TestBlocksShrinkWithDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Hour}
		w.fill(p, 120)
		for range 20 { // less than blockIdle apart
			time.Sleep(100 * time.Millisecond)
			w.replicas[0].request(p, 1)
		}
		if n := w.replicas[0].unused(); n > maxUnused*2*10 {
			t.Errorf("%d unused hits with a demand of ten a second", n)
		}
	})
}

// These charges are decided by the store, whatever blocks there are.
func TestChargesWithoutBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Hour}
		with := func(change func(c *limiter.Charge, p *limiter.Policy)) limiter.Charge {
			own := p
			c := oneHit(1, &own)
			change(&c, &own)
			return c
		}
		w.fill(&p, 50)
		if !w.replicas[0].decidesLocally(oneHit(1, &p)) {
			t.Error("an ordinary request was not decided from the block")
		}
		for name, c := range map[string]limiter.Charge{
			"a look-up":                   with(func(c *limiter.Charge, _ *limiter.Policy) { c.Hits = 0 }),
			"a refund":                    with(func(c *limiter.Charge, _ *limiter.Policy) { c.Refund = true }),
			"blocks: off, or an override": with(func(_ *limiter.Charge, p *limiter.Policy) { p.NoBlocks = true }),
			"a penalty":                   with(func(_ *limiter.Charge, p *limiter.Policy) { p.Penalty = limiter.NewPenalty(time.Minute) }),
			"another limit":               with(func(_ *limiter.Charge, p *limiter.Policy) { p.Limit++ }),
			"more than a block":           with(func(c *limiter.Charge, _ *limiter.Policy) { c.Hits = 10_000 }),
			"a token bucket": with(func(_ *limiter.Charge, p *limiter.Policy) {
				p.Algorithm, p.Burst = limiter.TokenBucket, 1000
			}),
		} {
			if w.replicas[0].decidesLocally(c) {
				t.Errorf("%s was not decided by the store", name)
			}
		}
	})
}

// exhaust sends requests with 100 hits, and then with one, until one of each is denied.
func (w *blockWorld) exhaust(p *limiter.Policy) {
	w.t.Helper()
	for hits := uint64(100); hits > 0; hits /= 100 {
		for denied := false; !denied; {
			time.Sleep(5 * time.Millisecond)
			before := w.total()
			w.replicas[0].request(p, hits)
			time.Sleep(5 * time.Millisecond)
			denied = w.total() == before
		}
	}
}

// A denial by the store is repeated from memory for a short time. It charges nothing.
func TestBlocksRepeatDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldWith(t, 1, time.Millisecond, Allow)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 14, Window: limiter.MaxWindow, CountRefused: true}
		w.exhaust(p)
		r, c := w.replicas[0], caller{}
		for range 5 {
			if done, err := c.start(r.store, 0, oneHit(1, p)); !done || err != nil || !c.b.Denied || c.b.Decisions[0].Charged != 0 {
				t.Fatalf("decided in memory %v, %+v, %v, want a denial", done, c.b.Decisions, err)
			}
		}
		time.Sleep(denyFor)
		if done, _ := c.start(r.store, 0, oneHit(1, p)); done {
			t.Error("the denial was repeated for too long")
		} else if err := <-c.decided; err != nil || !c.b.Denied {
			t.Error("admitted beyond the limit")
		}
		if done, _ := c.start(r.store, 0, oneHit(1, p)); !done {
			t.Error("the new denial was not repeated")
		}
		r.cut()
		synctest.Wait()
		if must.OK(t, c.decide(r.store, oneHit(1, p))); c.b.Denied {
			t.Error("a denial was repeated during an outage, want the fallback")
		}
	})
}

// If denied hits count, a look-up is denied once one of them was counted.
func TestBlocksCountADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5000, Window: time.Hour, CountRefused: true}
		r, c := w.replicas[0], caller{}
		w.fill(p, 20)
		time.Sleep(time.Second) // the block is returned
		for range 20 {          // the counter stays hot
			time.Sleep(time.Millisecond)
			must.OK(t, c.decide(r.store, oneHit(1, p)))
		}
		time.Sleep(250 * time.Millisecond)
		peek, rest := oneHit(1, p), oneHit(1, p)
		peek.Hits = 0
		must.OK(t, c.decide(r.store, peek))
		rest.Hits = c.b.Decisions[0].Remaining
		if must.OK(t, c.decide(r.store, rest)); c.b.Denied || len(r.store.blocks.counters()) == 0 {
			t.Fatal("the rest was denied, or the counter is not hot")
		}
		for denied := false; !denied; denied = c.b.Denied { // a block that was charged meanwhile has hits left
			must.OK(t, c.decide(r.store, oneHit(1, p)))
		}
		if must.OK(t, c.decide(r.store, peek)); !c.b.Decisions[0].Over {
			t.Errorf("a look-up after a denial: %+v, want over the limit", c.b.Decisions[0])
		}
	})
}

// A block that was charged for the next window does not let the fallback admit more hits of this
// one.
func TestBlocksOfTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorldWith(t, 1, 10*time.Millisecond, Local)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 500, Window: time.Second}
		r := w.replicas[0]
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		for end := time.Now().Add(3 * time.Second); time.Until(end) > time.Millisecond; {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		if h := r.store.blocks.counters()[0]; h.windowOf(p.WindowEnd(limiter.Time(time.Now().Add(time.Second).UnixNano()))) == nil {
			t.Fatal("no block of the next window")
		}
		r.cut()
		synctest.Wait()
		var c caller
		if must.OK(t, c.decide(r.store, oneHit(1, p))); !c.b.Denied {
			t.Error("the fallback admitted a hit of an exhausted window")
		}
	})
}

// The number of replicas in the store determines the share of a block.
func TestBlocksKnowTheReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 3, time.Millisecond)
		time.Sleep(2 * time.Second)
		for _, r := range w.replicas {
			if n := r.store.blocks.replicas.Load(); n != 3 {
				t.Errorf("%d replicas, want 3", n)
			}
		}
		w.replicas[0].stop()
		time.Sleep(replicaExpiry + 2*time.Second)
		if n := w.replicas[1].store.blocks.replicas.Load(); n != 2 {
			t.Errorf("%d replicas after one has stopped, want 2", n)
		}
	})
}
