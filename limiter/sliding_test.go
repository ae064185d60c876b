package limiter

import (
	"math"
	"testing"
	"time"
)

func TestSlidingWindow(t *testing.T) {
	const msec = time.Millisecond
	second := func(limit, k uint32) Policy {
		return Policy{Algorithm: SlidingWindow, Limit: limit, Window: time.Second, SubWindows: k}
	}
	counted := second(5, 10)
	counted.CountRefused = true
	tests := []struct {
		name  string
		p     Policy
		steps []step
	}{
		{
			name: "hits expire at most a sub-window late", p: second(3, 10),
			steps: []step{
				{now: 0, hits: 1, charged: 1, remaining: 2, reset: 1100 * msec},
				{now: 99 * ms, hits: 1, before: 1, charged: 1, remaining: 1, reset: 1001 * msec},
				{now: 550 * ms, hits: 1, before: 2, charged: 1, reset: 1050 * msec},
				{now: 550 * ms, hits: 1, before: 3, over: true, reset: 550 * msec, retry: 550 * msec},
				{now: 550 * ms, hits: 3, before: 3, over: true, reset: 1050 * msec, retry: 1050 * msec},
				{now: 550 * ms, hits: 4, before: 3, over: true, reset: time.Second, retry: Never},
				{now: 1100*ms - 1, hits: 1, before: 3, over: true, reset: 1, retry: 1},
				{now: 1100 * ms, hits: 1, before: 1, charged: 1, remaining: 1, reset: 1100 * msec},
				{now: 1100 * ms, before: 2, remaining: 1, reset: 1100 * msec},
				{now: 1600 * ms, before: 1, remaining: 2, reset: 600 * msec},
				{now: 2200*ms - 1, before: 1, remaining: 2, reset: 1},
				{now: 2200 * ms, remaining: 3, reset: 1},
			},
		},
		{
			name: "late and early", p: second(3, 10),
			steps: []step{
				{now: 5 * sec, hits: 1, charged: 1, remaining: 2, reset: 1100 * msec},
				{now: 4 * sec, hits: 1, before: 1, charged: 1, remaining: 1, reset: 2100 * msec},
				{now: 4 * sec, hits: 2, before: 2, over: true, reset: 2100 * msec, retry: 2100 * msec},
				{now: 6 * sec, hits: 1, before: 2, charged: 1, reset: 1100 * msec},
				{now: 6100 * ms, hits: 2, before: 1, charged: 2, reset: 1100 * msec},
			},
		},
		{
			name: "denied hits count", p: counted,
			steps: []step{
				{now: 0, hits: 4, charged: 4, remaining: 1, reset: 1100 * msec},
				{now: 500 * ms, hits: 2, before: 4, charged: 2, over: true, reset: 600 * msec, retry: 600 * msec},
				{now: 500 * ms, before: 6, over: true, reset: 600 * msec, retry: 600 * msec},
				{now: 1099 * ms, hits: math.MaxUint64, before: 6, charged: math.MaxUint32, over: true, reset: time.Second, retry: Never},
				{now: 1100 * ms, hits: 1, before: 2 + math.MaxUint32, charged: 1, over: true, reset: sec1, retry: sec1},
				{now: 2300 * ms, hits: 5, charged: 5, reset: 1100 * msec},
			},
		},
		{
			name: "refund of the current sub-window", p: second(9, 10),
			steps: []step{
				{now: 0, hits: 4, charged: 4, remaining: 5, reset: 1100 * msec},
				{now: 100 * ms, hits: 1, refund: true, before: 4, remaining: 5, reset: 1000 * msec},
				{now: 100 * ms, hits: 2, before: 4, charged: 2, remaining: 3, reset: 1100 * msec},
				{now: 199 * ms, hits: 9, refund: true, before: 6, charged: 2, remaining: 5, reset: 901 * msec},
				{now: 300 * ms, before: 4, remaining: 5, reset: 800 * msec},
			},
		},
		{
			name: "one sub-window", p: second(2, 1),
			steps: []step{
				{now: 1999 * ms, hits: 2, charged: 2, reset: 1001 * msec},
				{now: 2 * sec, hits: 1, before: 2, over: true, reset: sec1, retry: sec1},
				{now: 3*sec - 1, hits: 1, before: 2, over: true, reset: 1, retry: 1},
				{now: 3 * sec, hits: 2, charged: 2, reset: 2 * sec1},
			},
		},
		{
			name: "sub-windows of fractional nanoseconds", p: second(1, 7), // 142857143 ns
			steps: []step{
				{now: 142857143, hits: 1, charged: 1, reset: 8 * 142857143},
				{now: 142857143*9 - 1, hits: 1, before: 1, over: true, reset: 1, retry: 1},
				{now: 142857143 * 9, hits: 1, charged: 1, reset: 8 * 142857143},
			},
		},
		{
			name: "before the epoch and after a long time", p: second(2, 10),
			steps: []step{
				{now: -1, hits: 2, charged: 2, reset: time.Second + 1},
				{now: sec, hits: 2, charged: 2, reset: 1100 * msec},
				{now: 9000 * Time(24*time.Hour), hits: 2, charged: 2, reset: 1100 * msec},
				{now: 5000 * Time(24*time.Hour), hits: 2, charged: 2, reset: 1100 * msec}, // the clock was set back
				{now: 5000*Time(24*time.Hour) - sec, hits: 1, before: 2, over: true, reset: 2100 * msec, retry: 2100 * msec},
			},
		},
		{
			name: "limit 0", p: second(0, 10),
			steps: []step{
				{now: 0, hits: 1, over: true, reset: sec1, retry: Never},
				{now: 0, reset: 1},
			},
		},
		{
			// 150 hits at 1:50 and 150 at 2:10: the last 100 are denied.
			name: "edge of a minute", p: Policy{Algorithm: SlidingWindow, Limit: 200, Window: time.Minute, SubWindows: 10},
			steps: []step{
				{now: 110 * sec, hits: 150, charged: 150, remaining: 50, reset: 64 * sec1},
				{now: 130 * sec, hits: 50, before: 150, charged: 50, reset: 62 * sec1},
				{now: 130 * sec, hits: 100, before: 200, over: true, reset: 44 * sec1, retry: 44 * sec1},
			},
		},
		{
			// The ring of sub-windows: jumps of 1, 3 and 7 sub-windows of 1 s.
			name: "five sub-windows", p: Policy{Algorithm: SlidingWindow, Limit: 9, Window: 5 * time.Second, SubWindows: 5},
			steps: []step{
				{now: 100 * sec, hits: 1, charged: 1, remaining: 8, reset: 6 * sec1},
				{now: 101 * sec, hits: 1, before: 1, charged: 1, remaining: 7, reset: 6 * sec1},
				{now: 104 * sec, hits: 1, before: 2, charged: 1, remaining: 6, reset: 6 * sec1},
				{now: 105 * sec, hits: 1, before: 3, charged: 1, remaining: 5, reset: 6 * sec1},
				{now: 106 * sec, hits: 1, before: 3, charged: 1, remaining: 5, reset: 6 * sec1},
				{now: 113 * sec, hits: 1, charged: 1, remaining: 8, reset: 6 * sec1},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { playSteps(t, tt.p, tt.steps) })
	}
}

const sec1 = time.Second

// TestSlidingWindowExample checks the hits in each of the ten slots of a window. At 5227, the hit at
// 4213 also counts.
func TestSlidingWindowExample(t *testing.T) {
	p := Policy{Algorithm: SlidingWindow, Limit: 10, Window: time.Second, SubWindows: 10}
	tab := newTable(t, MinBytes)
	const base = 1_700_000_000 * sec
	for _, s := range []struct {
		at     Time
		counts map[int]uint64 // by slot, hundreds of milliseconds within the second
		extra  uint64
	}{
		{9568, map[int]uint64{5: 1}, 0},
		{11250, map[int]uint64{2: 1}, 0},
		{12007, map[int]uint64{0: 1, 2: 1}, 0},
		{12083, map[int]uint64{0: 2, 2: 1}, 0},
		{13857, map[int]uint64{8: 1}, 0},
		{14213, map[int]uint64{2: 1, 8: 1}, 0},
		{15227, map[int]uint64{2: 1}, 1},
		{15388, map[int]uint64{2: 1, 3: 1}, 0},
		{16076, map[int]uint64{0: 1, 2: 1, 3: 1}, 0},
		{16590, map[int]uint64{0: 1, 5: 1}, 0},
		{18828, map[int]uint64{8: 1}, 0},
	} {
		now := base + s.at*ms
		d := decide(tab, now, oneHit(counterID(1), &p)).Decisions[0]
		total := s.extra
		for _, n := range s.counts {
			total += n
		}
		if d.Over || d.Before+1 != total {
			t.Errorf("at %d: decision %+v, want %d hits after it", s.at, d, total)
		}
		var v view
		(&Batch{table: tab, Charges: []Charge{{ID: counterID(1), Policy: &p}}}).read(now, 0, &v)
		for slot := range 10 {
			x := v.mark - (v.mark-int64(slot))%10 // base is a whole second
			got := v.countOf(10, x)
			if x == v.mark {
				got = v.used
			}
			if want := s.counts[slot]; got != want {
				t.Errorf("at %d: slot %d has %d, want %d", s.at, slot, got, want)
			}
		}
	}
}

func TestSlidingLog(t *testing.T) {
	const msec = time.Millisecond
	log := func(limit uint32) Policy {
		return Policy{Algorithm: SlidingLog, Limit: limit, Window: 2 * time.Second}
	}
	counted := log(3)
	counted.CountRefused = true
	tests := []struct {
		name  string
		p     Policy
		steps []step
	}{
		{
			name: "two hits in two seconds", p: log(2),
			steps: []step{
				{now: 0, hits: 1, charged: 1, remaining: 1, reset: 2 * sec1},
				{now: 500 * ms, hits: 1, before: 1, charged: 1, reset: 2 * sec1},
				{now: 600 * ms, hits: 1, before: 2, over: true, reset: 1400 * msec, retry: 1400 * msec},
				{now: 600 * ms, hits: 2, before: 2, over: true, reset: 1900 * msec, retry: 1900 * msec},
				{now: 600 * ms, hits: 3, before: 2, over: true, reset: 2 * sec1, retry: Never},
				{now: 2*sec - 1, hits: 1, before: 2, over: true, reset: 1, retry: 1},
				{now: 2 * sec, hits: 1, before: 1, charged: 1, reset: 2 * sec1},
				{now: 2500*ms - 1, before: 2, reset: 1500*msec + 1},
				{now: 2500 * ms, before: 1, remaining: 1, reset: 1500 * msec},
			},
		},
		{
			name: "late hits count at the newest time", p: log(3),
			steps: []step{
				{now: 5 * sec, hits: 1, charged: 1, remaining: 2, reset: 2 * sec1},
				{now: 4 * sec, hits: 1, before: 1, charged: 1, remaining: 1, reset: 3 * sec1},
				{now: 1 * sec, hits: 2, before: 2, over: true, reset: 6 * sec1, retry: 6 * sec1},
				{now: 7 * sec, hits: 3, charged: 3, reset: 2 * sec1},
			},
		},
		{
			name: "denied hits count", p: counted,
			steps: []step{
				{now: 0, hits: 2, charged: 2, remaining: 1, reset: 2 * sec1},
				{now: sec, hits: 2, before: 2, charged: 1, over: true, reset: 2 * sec1, retry: 2 * sec1},
				{now: sec, before: 3, reset: 2 * sec1},
				{now: 1500 * ms, hits: math.MaxUint64, before: 3, over: true, reset: 2 * sec1, retry: Never},
				{now: 3 * sec, hits: 1, before: 3, over: true, reset: 500 * msec, retry: 500 * msec},
				{now: 3500 * ms, hits: 2, before: 1, charged: 2, reset: 2 * sec1},
			},
		},
		{
			name: "a refund removes the newest hits", p: log(4),
			steps: []step{
				{now: 0, hits: 1, refund: true, remaining: 4, reset: 1},
				{now: 0, hits: 2, charged: 2, remaining: 2, reset: 2 * sec1},
				{now: sec, hits: 2, before: 2, charged: 2, reset: 2 * sec1},
				{now: 1500 * ms, hits: 3, refund: true, before: 4, charged: 3, remaining: 3, reset: 500 * msec},
				{now: 1500 * ms, hits: 3, before: 1, charged: 3, reset: 2 * sec1},
				{now: 1500 * ms, hits: 1, before: 4, over: true, reset: 500 * msec, retry: 500 * msec},
				{now: 1600 * ms, hits: 9, refund: true, before: 4, charged: 4, remaining: 4, reset: 1},
			},
		},
		{
			name: "limit 0", p: log(0),
			steps: []step{
				{now: 0, hits: 1, over: true, reset: 2 * sec1, retry: Never},
				{now: 0, reset: 1},
			},
		},
		{
			name: "greatest limit", p: log(MaxLog),
			steps: []step{
				{now: 0, hits: MaxLog - 1, charged: MaxLog - 1, remaining: 1, reset: 2 * sec1},
				{now: sec, hits: 1, before: MaxLog - 1, charged: 1, reset: 2 * sec1},
				{now: sec, hits: MaxLog, before: MaxLog, over: true, reset: 2 * sec1, retry: 2 * sec1},
				{now: 2 * sec, hits: MaxLog - 1, before: 1, charged: MaxLog - 1, reset: 2 * sec1},
				{now: 2 * sec, hits: 1, before: MaxLog, over: true, reset: sec1, retry: sec1},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { playSteps(t, tt.p, tt.steps) })
	}
}

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
