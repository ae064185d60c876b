package limiter

import (
	"testing"
	"time"
)

// groupPolicy returns the policy of counters 1 to 4 of a group test. Odd counters in the tens count
// denied hits.
func groupPolicy(counter int) *Policy {
	limits := map[int]uint32{1: 10, 2: 5, 3: 2, 4: 0, 11: 10, 12: 2}
	return &Policy{
		Algorithm: FixedWindow, Limit: limits[counter], Window: time.Minute, CountRefused: counter > 10,
	}
}

func hit(counter int, hits uint64, mode Mode, group int32) Charge {
	return Charge{ID: counterID(counter), Policy: groupPolicy(counter), Hits: hits, Mode: mode, Group: group}
}

func refund(counter int, hits uint64, group int32) Charge {
	c := hit(counter, hits, Enforce, group)
	c.Refund = true
	return c
}

// used returns the usage of a counter.
func used(t *Table, now Time, counter int) uint64 {
	return decide(t, now, hit(counter, 0, Shadow, 0)).Decisions[0].Before
}

// TestBatchSizes decides an empty batch, and one of the maximum size of a request.
func TestBatchSizes(t *testing.T) {
	tab := newTable(t, 1<<20)
	b := decide(tab, min1)
	if b.Denied || len(b.Decisions) != 0 {
		t.Errorf("empty batch: Denied = %v, %d decisions", b.Denied, len(b.Decisions))
	}
	const n = 1000
	p := &Policy{Algorithm: FixedWindow, Limit: n / 2, Window: time.Minute}
	b.Reset()
	for i := range n { // two counters alternate
		b.Charges = append(b.Charges, Charge{ID: counterID(i % 2), Policy: p, Hits: 1})
	}
	tab.Decide(min1, b)
	if d := b.Decisions[n-1]; b.Denied || d.Before != n/2-1 || d.Charged != 1 {
		t.Errorf("first batch: Denied = %v, last decision %+v", b.Denied, d)
	}
	tab.Decide(min1, b)
	if d := b.Decisions[0]; !b.Denied || !d.Over || d.Before != n/2 {
		t.Errorf("second batch: Denied = %v, first decision %+v", b.Denied, d)
	}
	b.Reset()
	if b.Denied || len(b.Decisions) != 0 || b.Charges[:1][0].Policy != nil {
		t.Errorf("Reset left %+v", b)
	}
}

// TestRollBackAcrossWindows checks that undoing a charge of a past window does not change the next
// window.
func TestRollBackAcrossWindows(t *testing.T) {
	tab := newTable(t, MinBytes)
	c := hit(1, 3, Enforce, 0)
	b := decide(tab, min1, c)
	b.marks[0] = int64(2 * min1 / sec)
	decide(tab, 2*min1, c)
	b.rollBack(min1, 0)
	if got := used(tab, 2*min1, 1); got != 3 {
		t.Errorf("used = %d, want 3", got)
	}
}
