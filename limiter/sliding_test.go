package limiter

import (
	"testing"
	"time"
)

// TestLogMoves checks that a log whose limit changes keeps its newest hits, also if it moves to
// another size class.
func TestLogMoves(t *testing.T) {
	tab := newTable(t, 1<<20)
	of := func(limit uint32) *Policy {
		return &Policy{Algorithm: SlidingLog, Limit: limit, Window: 10 * time.Second}
	}
	hits := func(now Time, p *Policy, n uint64) Decision {
		return decide(tab, now, Charge{ID: counterID(1), Policy: p, Hits: n}).Decisions[0]
	}
	for i := range 100 {
		hits(sec+Time(i)*ms, of(100), 1)
	}
	for _, s := range []struct {
		limit         uint32
		hits          uint64
		before, after uint64
		retry         time.Duration
	}{
		{limit: 3, before: 3, after: 3},
		{limit: 3, hits: 1, before: 3, after: 3, retry: 9097 * time.Millisecond},
		{limit: 200, before: 100, after: 100},
		{limit: 200, hits: 1, before: 100, after: 101},
		{limit: 5, before: 5, after: 5},
		{limit: 110, hits: 9, before: 101, after: 110},
		{limit: 4, hits: 4, before: 4, after: 4, retry: 10 * time.Second},
	} {
		d := hits(2*sec, of(s.limit), s.hits)
		if d.Before != s.before || d.RetryAfter != s.retry || d.Before+d.Charged != s.after {
			t.Errorf("limit %d, %d hits: decision %+v, want before %d, after %d, retry %v", s.limit, s.hits, d, s.before, s.after, s.retry)
		}
	}
	// A refund from another size class, then hits with the smallest limit.
	c := Charge{ID: counterID(1), Policy: of(4), Hits: 2, Refund: true}
	if d := decide(tab, 2*sec, c).Decisions[0]; d.Before != 4 || d.Charged != 2 || d.Remaining != 2 {
		t.Errorf("refund: %+v", d)
	}
	if d := hits(2*sec, of(4), 2); d.Before != 2 || d.Charged != 2 {
		t.Errorf("hits after the refund: %+v", d)
	}
	if d := hits(2*sec, of(500), 0); d.Before != 4 {
		t.Errorf("peek: %+v, want the 4 that moved", d)
	}
	if got := tab.Live(2 * sec); got != 1 {
		t.Errorf("Live = %d, want 1", got)
	}
}

// TestRefundOfAFullLog checks that a full log can be refunded completely, in any slot, and then
// equals an absent one.
func TestRefundOfAFullLog(t *testing.T) {
	tab, p := newTable(t, MinBytes), logOf(2)
	for n := range 100 { // counters in all slots
		id := counterID(n)
		for _, c := range []Charge{{Hits: 1}, {Hits: 1}, {Hits: 2, Refund: true}} {
			c.ID, c.Policy = id, p
			if d := decide(tab, min1, c).Decisions[0]; d.Charged != c.Hits {
				t.Fatalf("counter %d: %+v, want all %d hits", n, d, c.Hits)
			}
		}
		if got := tab.Live(min1); got != 0 {
			t.Fatalf("Live = %d, want none", got)
		}
	}
	if s := tab.Stats(); s.Evicted > 0 {
		t.Errorf("%+v, want none evicted", s)
	}
}
