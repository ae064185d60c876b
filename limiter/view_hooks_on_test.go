//go:build limiterhooks

package limiter

import "testing"

// TestCounterReleasedWhileItIsRead reads the hold of a counter while it is released and its slot is
// given to another counter. The second read must find no hold.
func TestCounterReleasedWhileItIsRead(t *testing.T) {
	for name, p := range reserving(10, 1, true) {
		g := newBudget(t, p)
		g.table = newTable(t, MinBytes)
		lease := g.reserve(benchNow, 3)
		hold := &p.Reserve.hold
		tag := tagOf(g.id, Concurrency)
		slots := g.table.common.class(hold)
		there := func() bool { slot, _ := slots.find(tag, g.id); return slot != nil }
		if lease == 0 || !there() {
			t.Fatalf("%s: no hits are held", name)
		}
		reads := 0
		f := func(at point) {
			if at != beforeCellLoad {
				return
			}
			// The first read only determines the held hits. The second precedes a reservation.
			if reads++; reads != 2 {
				return
			}
			onPause.Store(nil)
			b := &Batch{Charges: []Charge{{ID: g.id, Policy: p, Hits: lease, Refund: true}}}
			if g.table.Decide(benchNow, b); b.Decisions[0].Charged != 3 {
				t.Errorf("%s: %d hits were released", name, b.Decisions[0].Charged)
			}
			for n := 1; there() && n < 1000; n++ {
				acquirePermit(g.table, benchNow, counterID(n), hold)
			}
			if there() {
				t.Errorf("%s: the counter keeps its slot", name)
			}
		}
		onPause.Store(&f)
		if g.reserve(benchNow, 3) == 0 {
			t.Errorf("%s: the hit was denied although no hits are held", name)
		}
		if onPause.Swap(nil) != nil {
			t.Errorf("%s: the counter was read %d times", name, reads)
		}
	}
}
