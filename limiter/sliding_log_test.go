package limiter

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestALogLivesAsLongAsItsNewestHit checks that a log keeps its slot until its newest hit has
// ceased to count, also after a late hit.
func TestALogLivesAsLongAsItsNewestHit(t *testing.T) {
	p := &Policy{Algorithm: SlidingLog, Limit: 8, Window: time.Minute}
	p.Prepare()
	table := newTable(t, MinBytes)
	hit := func(now Time, n int) *Decision { return &decide(table, now, oneHit(counterID(n), p)).Decisions[0] }
	hit(0, 0)
	if d := hit(min1-1, 0); d.Before != 1 {
		t.Fatalf("Before = %d at the second hit, want 1", d.Before)
	}
	if d := hit(0, 0); d.Before != 2 {
		t.Fatalf("Before = %d at the late hit, want 2", d.Before)
	}
	for n := 1; n <= 1000; n++ { // most counters evict others of the loop
		hit(min1, n)
	}
	if table.Stats().Evicted == 0 {
		t.Fatal("no counter was evicted; want a flood")
	}
	if d := hit(min1, 0); d.Before != 2 || d.Remaining != 5 {
		t.Errorf("Before = %d, Remaining = %d after the flood, want 2 and 5: the second and third hit still count", d.Before, d.Remaining)
	}
}

// TestALogNeverGoesBack checks late hits after an undo. A charge that is undone has dropped hits
// that had expired at its time. A late hit may use their capacity only if it counts at that time,
// not at its own earlier time.
func TestALogNeverGoesBack(t *testing.T) {
	t.Parallel()
	undo := map[string]func(tab *Table, now Time, p *Policy){
		"refund": func(tab *Table, now Time, p *Policy) {
			decide(tab, now, oneHit(counterID(0), p))
			decide(tab, now, Charge{ID: counterID(0), Policy: p, Hits: 1, Refund: true})
		},
		"roll-back": func(tab *Table, now Time, p *Policy) { // after all charges are decided
			quota := oneHit(counterID(1), perMinute(0))
			quota.Mode = Quota
			refund := Charge{ID: counterID(2), Policy: p, Refund: true, Group: 1}
			decide(tab, now, oneHit(counterID(0), p), quota, refund)
		},
		"reset": func(tab *Table, now Time, p *Policy) {
			b := decide(tab, now, oneHit(counterID(0), p))
			tab.Reset(now, b, 0)
		},
	}
	for name, undo := range undo {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Policy{Algorithm: SlidingLog, Limit: 3, Window: time.Minute}
			p.Prepare()
			table := newTable(t, 0)
			three := Charge{ID: counterID(0), Policy: p, Hits: 3}
			decide(table, benchNow, three)
			later := benchNow + Time(p.Window) // when the hits have ceased to count
			undo(table, later, p)
			if d := decide(table, later-1, three).Decisions[0]; d.Over || d.Before != 0 || d.Reset != p.Window+1 {
				t.Errorf("the late hits: %+v, want them admitted and counted at the time of the undone charge", d)
			}
			if d := decide(table, later+Time(p.Window)-1, oneHit(counterID(0), p)).Decisions[0]; !d.Over || d.Before != 3 {
				t.Errorf("a window after the late hits: %+v, want the late hits to count", d)
			}
		})
	}
}

// TestLogAfterClockSetBack checks that hits more than an hour ahead do not count.
func TestLogAfterClockSetBack(t *testing.T) {
	p := &Policy{Algorithm: SlidingLog, Limit: 8, Window: time.Minute}
	p.Prepare()
	table, ahead := newTable(t, 0), benchNow+3600*sec
	hit := func(now Time, n int) *Decision { return &decide(table, now, oneHit(counterID(n), p)).Decisions[0] }
	hit(ahead, 0)
	if d := hit(benchNow, 0); d.Before != 1 || d.Reset != time.Duration(ahead-benchNow)+p.Window {
		t.Errorf("a hit an hour late: Before = %d, Reset = %v, want 1 until the newest hit ceases to count", d.Before, d.Reset)
	}
	hit(ahead+1, 1)
	if d := hit(benchNow, 1); d.Before != 0 || d.Reset != p.Window {
		t.Errorf("a hit that is later than that: Before = %d, Reset = %v, want those of a new log", d.Before, d.Reset)
	}
}

// TestNoWordLeadsOutOfALog checks that no word leads to an index outside of the cells.
func TestNoWordLeadsOutOfALog(t *testing.T) {
	s := &sizeClass{size: 5, cells: make([]atomic.Uint64, 3*5)}
	for i := range s.cells {
		s.cells[i].Store(uint64(i / 5))
	}
	for _, word := range []uint64{0, logPayload(4, 5), logPayload(5, 5), payloadMask, lockBit - 1, dead} {
		for index := range uint64(3) {
			for back := range uint64(5) {
				if got := s.log(index, word).at(back + 1); got != int64(index) {
					t.Errorf("word %#x of slot %d: the hit %d back is in slot %d", word, index, back+1, got)
				}
			}
		}
	}
}
