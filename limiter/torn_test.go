//go:build limiterhooks

package limiter

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestResetIsOfOneMoment checks that Reset and Before of a decision are consistent when cells
// change between two loads: a concurrent charge at any point leaves a decision from before it or
// from after it.
func TestResetIsOfOneMoment(t *testing.T) {
	const window = 10 * time.Second
	log := &Policy{Algorithm: SlidingLog, Limit: 5, Window: window}
	ring := &Policy{Algorithm: SlidingWindow, Limit: 100, Window: window, SubWindows: 10}
	prepared, id, other := *log, counterID(1), counterID(2)
	prepared.Prepare()
	ring.Prepare()
	full := &Policy{Algorithm: FixedWindow, Limit: 1, Window: 24 * time.Hour}
	changeLog := func(decide func(time.Duration, Charge)) {
		decide(0, Charge{ID: id, Policy: log, Hits: 1, Refund: true})
		decide(time.Second/2, oneHit(id, log))
		decide(time.Second/2, oneHit(id, log))
	}
	for _, tc := range []struct {
		name    string
		p       *Policy
		charges []Charge // the decision of the first is checked
		change  func(decide func(after time.Duration, c Charge))
	}{
		{"peek/log", log, []Charge{{ID: id, Policy: log}}, changeLog},
		{"refund/log", log, []Charge{{ID: id, Policy: log, Hits: 1, Refund: true}}, changeLog},
		{"peek/ring", ring, []Charge{{ID: id, Policy: ring}}, func(decide func(time.Duration, Charge)) {
			decide(window, Charge{ID: id, Policy: ring, Hits: 7})
		}},
		{"pair/ring", ring, []Charge{{ID: id, Policy: ring, Hits: 1}, {ID: other, Policy: full, Hits: 1}}, func(decide func(time.Duration, Charge)) {
			decide(0, Charge{ID: id, Policy: ring, Hits: 7})
		}},
		{"pair/log", &prepared, []Charge{{ID: id, Policy: &prepared, Hits: 1}, {ID: other, Policy: full, Hits: 1}}, changeLog},
		{"group/log", log, []Charge{
			{ID: id, Policy: log, Hits: 1}, {ID: other, Policy: &Policy{Algorithm: SlidingLog, Window: window}, Hits: 1},
		}, changeLog},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// run decides charges, with the change after the given number of points, and returns
			// the decision of the first and the number of points.
			run := func(at int) (d Decision, points int) {
				tab, busy := newTable(t, 1<<20), true
				decide := func(after time.Duration, c Charge) {
					tab.Decide(benchNow+Time(after), &Batch{Charges: []Charge{c}})
				}
				change := func() { busy = true; tc.change(decide); busy = false }
				f := func(p point) {
					if busy || p == whileCellsHeld { // the change would wait for this goroutine
						return
					}
					if points++; points == at {
						change()
					}
				}
				onPause.Store(&f)
				defer onPause.Store(nil)
				decide(-2*time.Second, oneHit(id, tc.p))
				decide(-time.Second, oneHit(id, tc.p))
				for _, c := range tc.charges[1:] {
					decide(0, c)
				}
				busy = false
				if at == 0 {
					change()
				}
				b := &Batch{Charges: tc.charges}
				tab.Decide(benchNow, b)
				return b.Decisions[0], points
			}
			before, points := run(-1)
			after, _ := run(0)
			if points == 0 || before == after {
				t.Fatalf("%d points; before the change %+v, after it %+v, want points and two different decisions", points, before, after)
			}
			for at := 1; at <= points; at++ {
				if got, _ := run(at); got != before && got != after {
					t.Errorf("changed at point %d of %d: %+v, want\n%+v or\n%+v", at, points, got, before, after)
				}
			}
		})
	}
}

// TestPairLeavesNoLogLocked checks that a group of a log and a counter that is hit between the
// swaps of the two does not leave the log locked, whether or not the counter is within its limit.
func TestPairLeavesNoLogLocked(t *testing.T) {
	p, first, second := logOf(5), counterID(1), counterID(2)
	p.Prepare()
	if first.Hi > second.Hi { // the log must be swapped first
		first, second = second, first
	}
	for _, tc := range []struct {
		limit        uint32
		denied       bool
		log, counter uint64 // hits
	}{{3, false, 2, 3}, {2, true, 1, 2}} {
		tab, limit := newTable(t, 1<<20), &Policy{Algorithm: FixedWindow, Limit: tc.limit, Window: 24 * time.Hour}
		hits := func(id identity.ID, p *Policy) uint64 {
			return decide(tab, benchNow, Charge{ID: id, Policy: p}).Decisions[0].Before
		}
		decide(tab, benchNow, oneHit(first, p), oneHit(second, limit)) // now both have their slots
		points := 0
		f := func(p point) {
			if p != betweenCharges {
				return
			}
			if points++; points == 2 {
				decide(tab, benchNow, oneHit(second, limit))
			}
		}
		onPause.Store(&f)
		denied := decide(tab, benchNow, oneHit(first, p), oneHit(second, limit)).Denied
		onPause.Store(nil)
		log, counter := hits(first, p), hits(second, limit)
		if denied != tc.denied || log != tc.log || counter != tc.counter || points < 2 {
			t.Errorf("denied %v, %d hits in the log and %d on the counter after %d points, want %+v", denied, log, counter, points, tc)
		}
	}
}

// TestMovingLogIsNotAbsent checks that a log that moves to another size class is found by
// concurrent readers.
func TestMovingLogIsNotAbsent(t *testing.T) {
	tab, small, large := newTable(t, 1<<20), logOf(2), logOf(100)
	id, moved := counterID(1), false
	decide(tab, benchNow, oneHit(id, small))
	f := func(p point) {
		if p == beforeElsewhere && !moved {
			moved = true
			decide(tab, benchNow, oneHit(id, large))
		}
	}
	onPause.Store(&f)
	defer onPause.Store(nil)
	if d := decide(tab, benchNow, Charge{ID: id, Policy: large}).Decisions[0]; !moved || d.Before != 2 {
		t.Errorf("moved %v, decision %+v, want two hits", moved, d)
	}
}

// TestHitWhileSlotChangesHandsIsNotLost checks that a hit on a counter whose slot is being reused
// waits and counts, also if the word of the slot looks like a drained bucket.
func TestHitWhileSlotChangesHandsIsNotLost(t *testing.T) {
	p := &Policy{Algorithm: TokenBucket, Limit: 1e6, Window: time.Second, Burst: 5}
	tab, ids := newTable(t, MinBytes), samePair(2*ways+1)
	for _, id := range ids[:2*ways] {
		decide(tab, benchNow, oneHit(id, p))
	}
	const later = benchNow + sec // all have expired
	var old identity.ID
	var expected atomic.Bool
	seen, done := make(chan struct{}), make(chan struct{})
	f := func(at point) {
		switch {
		case at == afterWordLoad && expected.CompareAndSwap(true, false):
			close(seen)
		case at == afterSlotDead:
			for _, id := range ids {
				if s, _ := oneWord(tab).find(tagOf(id, p.Algorithm), id); s != nil && s.word.Load() == dead {
					old = id
				}
			}
			expected.Store(true)
			go func(id identity.ID) {
				defer close(done)
				decide(tab, later, oneHit(id, p))
			}(old)
			<-seen
			for range 1000 { // a hit that does not wait would be done now
				runtime.Gosched()
			}
			onPause.Store(nil)
		}
	}
	onPause.Store(&f)
	defer onPause.Store(nil)
	decide(tab, later, oneHit(ids[2*ways], p))
	<-done
	if got := decide(tab, later, Charge{ID: old, Policy: p}).Decisions[0].Before; got != 1 {
		t.Errorf("the counter has used %d, want 1", got)
	}
}
