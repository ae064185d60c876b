package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A denial is repeated even if the counter has room for fewer hits.
func TestBlocksRepeatDenialsOfSeveralHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		r := w.replicas[0]
		for range 600 { // 1000 is not a multiple of three
			time.Sleep(5 * time.Millisecond)
			r.request(p, 3)
		}
		if len(r.store.blocks.counters()) == 0 || w.total() != 999 {
			t.Fatalf("%d hits admitted, want 999 on a hot counter", w.total())
		}
		commands, waited := w.commands.Load(), r.waited.Load()
		for range 200 {
			time.Sleep(5 * time.Millisecond)
			r.request(p, 3)
		}
		if n := r.waited.Load() - waited; n > 25 {
			t.Errorf("%d of 200 denials within a second asked the store (%d commands), want one each 50 ms", n, w.commands.Load()-commands)
		}
	})
}

// A rule that is edited can give a counter another name. Its blocks are those of the new name.
func TestBlocksOfARenamedCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		w.fill(p, 20)
		c := caller{decided: make(chan error, 1)}
		decide := func(hits uint64) {
			t.Helper()
			c.b.Reset()
			charge := oneHit(1, p)
			charge.Hits = hits
			c.b.Charges = append(c.b.Charges, charge)
			done, err := w.replicas[0].store.Decide(limiter.Time(time.Now().UnixNano()), &c.b, [][]byte{[]byte("renamed")}, &c)
			if !done {
				err = <-c.decided
			}
			must.OK(t, err)
		}
		commands := w.commands.Load()
		for range 3000 {
			time.Sleep(time.Millisecond)
			decide(1)
		}
		if n := w.commands.Load() - commands; n > 3000 {
			t.Errorf("%d commands: no block has the new name", n)
		}
		time.Sleep(time.Second) // unused hits are returned
		if decide(0); c.b.Decisions[0].Before != 3000 {
			t.Errorf("%d hits under the new name, want 3000", c.b.Decisions[0].Before)
		}
	})
}

// Counters that are no longer hot are removed. While one is hot, others do not take its place.
func TestHotCountersEnd(t *testing.T) {
	bl := newBlocks(newStore(t, Options{}), nil)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
	b := &limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: 1}}}
	promote := func(lo uint64) {
		b.Charges[0].ID = identity.ID{Lo: lo}
		bl.promote(b, 0, []byte("name"), 100, 0)
	}
	for lo := range uint64(maxHot) {
		promote(lo)
	}
	if n := must.AllocsPerRun(10, func() { promote(maxHot) }); n != 0 || len(bl.all) != maxHot {
		t.Errorf("%v allocations for a counter whose place is taken, and %d hot counters", n, len(bl.all))
	}
	w := bl.all[0].balances[0]
	w.word.Store(1) // an unused hit
	w.until.Store(int64(90 * time.Minute))
	bl.sweep(moment{elapsed: time.Hour})
	if n := len(bl.all); n != 1 {
		t.Errorf("%d hot counters are left, want the one with a block", n)
	}
	if h := bl.all[0]; bl.find(&h.charge) != h {
		t.Error("the counter with a block has lost its place")
	}
	if bl.all[0].acquiring.Load() {
		t.Error("a counter with a block cannot acquire another one")
	}
	bl.sweep(moment{elapsed: 2 * time.Hour})
	if n := len(bl.all); n != 0 || bl.hot[0].free() == nil {
		t.Errorf("%d hot counters are left, want none", n)
	}
}

// A reset also forgets which hits of the block were used: they are not charged after an outage.
func TestResetForgetsUsedHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: limiter.MaxWindow}
		w.fill(p, 20)
		r.reset(p)
		r.cut()
		time.Sleep(time.Second)
		c := oneHit(1, p)
		c.Hits = 0
		var look caller
		if must.OK(t, look.decide(r.store, c)); look.b.Decisions[0].Before != 0 {
			t.Errorf("%d hits after a reset and an outage, want none", look.b.Decisions[0].Before)
		}
	})
}

// While a rule is edited from one limit to another and back, hits reach the larger limit, and never
// exceed it.
func TestBlocksOfAnEditedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 2, time.Millisecond)
		low := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2000, Window: limiter.MaxWindow}
		high := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 3000, Window: limiter.MaxWindow}
		for n := range 8000 {
			p := low
			if n/370%2 == 1 {
				p = high
			}
			time.Sleep(time.Millisecond)
			w.replicas[n%2].request(p, 1)
		}
		synctest.Wait()
		if w.check(3000); w.total() < 2999 {
			t.Errorf("%d hits admitted, want 3000", w.total())
		}
	})
}

// A rule that is edited to have no blocks does not use its block, whose hits are returned while
// requests go on. If it may have blocks again, it does.
func TestBlocksOfALimitWithoutBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, auto := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		off := auto.Clone(nil)
		off.NoBlocks = true
		used := 0
		for range 2 {
			w.fill(auto, 50)
			for range 300 {
				time.Sleep(time.Millisecond)
				if r.decidesLocally(oneHit(1, &off)) {
					t.Fatal("a request was decided from the block")
				}
				used++
			}
			if n := r.unused(); n != 0 {
				t.Errorf("%d unused hits are left", n)
			}
			peek, c := oneHit(1, &off), caller{}
			peek.Hits = 0
			if must.OK(t, c.decide(r.store, peek)); int(c.b.Decisions[0].Before) != used+w.total() {
				t.Errorf("the store has %d hits, want the %d admitted", c.b.Decisions[0].Before, used+w.total())
			}
		}
	})
}

// A block that is being charged when the replica stops is returned, too.
func TestStopWhileABlockIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 2, 40*time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		w.fill(p, 100)
		time.Sleep(100 * time.Millisecond) // requests that waited for the first block are decided
		for h := r.store.blocks.counters()[0]; !h.acquiring.Load(); {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		time.Sleep(time.Millisecond)
		r.stop()
		var c caller
		peek := oneHit(1, p)
		peek.Hits = 0
		if must.OK(t, c.decide(w.replicas[1].store, peek)); int(c.b.Decisions[0].Before) != w.total() {
			t.Errorf("the store has %d hits, want the %d that were admitted", c.b.Decisions[0].Before, w.total())
		}
	})
}
