package limiter

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestNoAllocations checks that no path of Decide allocates once a batch has grown.
func TestNoAllocations(t *testing.T) {
	tight := &Policy{Algorithm: FixedWindow, Limit: 1, Window: 24 * time.Hour}
	counted := &Policy{Algorithm: FixedWindow, Limit: 1, Window: 24 * time.Hour, CountRefused: true}
	wide := &Policy{Algorithm: FixedWindow, Limit: 1 << 30, Window: 24 * time.Hour}
	single := func(p *Policy, hits uint64) []Charge { return []Charge{{ID: counterID(0), Policy: p, Hits: hits}} }
	many := make([]Charge, 100)
	for i := range many {
		many[i] = Charge{ID: counterID(i % 60), Policy: wide, Hits: 2, Refund: i%7 == 0}
	}
	quota := []Charge{
		{ID: counterID(1), Policy: wide, Hits: 1},
		{ID: counterID(2), Policy: tight, Hits: 1, Mode: Quota},
		{ID: counterID(2), Policy: tight, Hits: 1, Mode: Quota},
	}
	type test struct {
		name    string
		charges []Charge
	}
	tests := []test{
		{"allow", single(wide, 1)},
		{"deny", single(tight, 1)},
		{"count refused", single(counted, 1)},
		{"peek", single(wide, 0)},
		{"refund", []Charge{{ID: counterID(0), Policy: wide, Hits: 1, Refund: true}}},
		{"two groups", []Charge{{ID: counterID(0), Policy: wide, Hits: 1}, {ID: counterID(1), Policy: wide, Hits: 1, Group: 1}}},
		{"one group", []Charge{{ID: counterID(0), Policy: wide, Hits: 1}, {ID: counterID(1), Policy: wide, Hits: 1}}},
		{"denied group", []Charge{{ID: counterID(0), Policy: wide, Hits: 1}, {ID: counterID(1), Policy: tight, Hits: 2}}},
		{"quota", quota},
		{"many charges with refunds", many},
	}
	for name, p := range map[string]Policy{
		"sliding window": {Algorithm: SlidingWindow, Limit: 9, Window: time.Minute, SubWindows: 10},
		"calendar":       {Algorithm: FixedWindow, Limit: 9, Window: 24 * time.Hour, Calendar: NewCalendar(time.UTC, 1)},
		"calendar ring":  {Algorithm: SlidingWindow, Limit: 9, Window: 24 * time.Hour, SubWindows: 10, Calendar: NewCalendar(time.UTC, 1)},
		"sliding log":    {Algorithm: SlidingLog, Limit: 9, Window: time.Minute},
		"token bucket":   {Algorithm: TokenBucket, Limit: 9, Window: time.Minute, Burst: 9},
		"leaky bucket":   {Algorithm: LeakyBucket, Limit: 9, Window: time.Minute, Slack: 3, MaxWait: time.Minute, MaxWaiting: 99},
	} {
		debt := p
		debt.CountRefused = true
		tests = append(tests,
			test{name, single(&p, 1)}, test{name + " peek", single(&p, 0)}, test{name + " count refused", single(&debt, 2)},
			test{name + " refund", []Charge{{ID: counterID(0), Policy: &p, Hits: 1, Refund: true}}},
			test{name + " in a group", []Charge{{ID: counterID(0), Policy: &p, Hits: 1}, {ID: counterID(1), Policy: wide, Hits: 1}}},
			test{name + " in a denied group", []Charge{{ID: counterID(0), Policy: &p, Hits: 1}, {ID: counterID(1), Policy: tight, Hits: 2}}},
		)
	}
	permits, noPermit := &Policy{Algorithm: Concurrency, Limit: 100, Window: time.Minute}, &Policy{Algorithm: Concurrency, Limit: 1, Window: time.Minute}
	tests = append(tests, test{"concurrency", single(permits, 1)}, test{"concurrency, denied", single(noPermit, 1)},
		test{"concurrency in a group", []Charge{{ID: counterID(0), Policy: permits, Hits: 1}, {ID: counterID(1), Policy: wide, Hits: 1}}},
		test{"concurrency denied by another charge", []Charge{{ID: counterID(0), Policy: permits, Hits: 1}, {ID: counterID(1), Policy: tight, Hits: 2, Group: 1}}})
	penalised := Policy{Algorithm: FixedWindow, Limit: 1, Window: 24 * time.Hour, CountRefused: true, Penalty: NewPenalty(time.Second, 2*time.Second)}
	open := penalised
	open.Limit = 1 << 30
	tests = append(tests, test{"penalty, none", single(&open, 1)}, test{"penalty", single(&penalised, 1)}, test{"penalty, peek", single(&penalised, 0)},
		test{"penalty in a group", []Charge{{ID: counterID(0), Policy: &penalised, Hits: 1}, {ID: counterID(1), Policy: wide, Hits: 1}}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab, b, now := newTable(t, 64<<10), &Batch{Charges: tt.charges}, min1
			tab.Decide(now, b)
			if n := must.AllocsPerRun(100, func() { tab.Prefetch(b); tab.Decide(now, b) }); n != 0 {
				t.Errorf("known counters: %v allocations", n)
			}
			step := 24 * time.Hour
			if tt.charges[0].Policy.Calendar != nil { // a calendar allocates once per window, for any number of counters
				step /= 10
			}
			if n := must.AllocsPerRun(100, func() { now += Time(step); tab.Decide(now, b) }); n != 0 {
				t.Errorf("new windows: %v allocations", n)
			}
			found := make([]State, len(tt.charges))
			b.Stored().ReadStates(tab, now, found)
			b.Stored().Decide(now, found)
			if n := must.AllocsPerRun(100, func() { b.Stored().ReadStates(tab, now, found); b.Stored().Decide(now, found) }); n != 0 {
				t.Errorf("stored: %v allocations", n)
			}
			if n := must.AllocsPerRun(100, func() { b.Stored().StateAfter(now, 0, &found[0]); b.Stored().BucketAfter(now, 0) }); n != 0 {
				t.Errorf("reported: %v allocations", n)
			}
		})
	}
	t.Run("leases", func(t *testing.T) {
		tab, b := newTable(t, 1<<20), &Batch{}
		reserves := &Policy{Algorithm: TokenBucket, Limit: 100, Window: time.Minute, Burst: 100, Reserve: NewReserve(10, time.Minute, true)}
		for _, acquire := range []Charge{{ID: counterID(0), Policy: permits, Hits: 1}, {ID: counterID(1), Policy: reserves, Hits: 5, Reserve: true}} {
			now := min1
			if n := must.AllocsPerRun(100, func() {
				now += Time(time.Second)
				b.Charges = append(b.Charges[:0], acquire)
				tab.Decide(now, b)
				end := acquire
				end.Hits, end.Reserve, end.Refund = b.Lease(0), false, true
				b.Charges = append(b.Charges[:0], end)
				if tab.Decide(now, b); b.Decisions[0].Charged == 0 {
					t.Fatal("no permit was released")
				}
				b.Charges = append(b.Charges[:0], acquire)
				tab.Decide(now, b)
				tab.Cancel(now, b)
			}); n != 0 {
				t.Errorf("%+v: %v allocations", acquire, n)
			}
		}
	})
	t.Run("new counters", func(t *testing.T) {
		tab, b, i := newTable(t, MinBytes), &Batch{Charges: single(wide, 1)}, 0
		if n := must.AllocsPerRun(1000, func() { b.Charges[0].ID = counterID(i); i++; tab.Decide(min1, b) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if s := tab.Stats(); s.Evicted == 0 {
			t.Errorf("%+v, want evictions", s)
		}
	})
}
