package limiter

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// alternative returns a charge of a choice on a counter with the limit of groupPolicy.
func alternative(counter int, hits uint64, mode Mode, group int32, choice Choice) Charge {
	c := hit(counter, hits, mode, group)
	c.Choice = choice
	return c
}

// A choiceOutcome is the part of a decision that the tests of choices compare.
type choiceOutcome struct {
	Skipped, Over, Denied bool
	Charged, Remaining    uint64
	RetryAfter            time.Duration
}

func TestChoice(t *testing.T) {
	skipped, skippedDenied := choiceOutcome{Skipped: true}, choiceOutcome{Skipped: true, Denied: true}
	const window = 40 * time.Second // that remains at the time of the test
	choice := func(first, second int, hits uint64, mode Mode, group int32) []Charge {
		return []Charge{alternative(first, hits, mode, group, FirstChoice), alternative(second, hits, mode, group, NextChoice)}
	}
	for _, tt := range []struct {
		name    string
		before  []Charge
		charges []Charge
		want    []choiceOutcome
		denied  bool
		used    map[int]uint64
	}{
		{
			name: "first has room", charges: choice(1, 2, 10, Enforce, 0),
			want: []choiceOutcome{{Charged: 10}, skipped}, used: map[int]uint64{1: 10},
		},
		{
			name: "hits are not split", before: []Charge{hit(2, 1, Enforce, 0)}, charges: choice(2, 1, 5, Enforce, 0),
			want: []choiceOutcome{skipped, {Charged: 5, Remaining: 5}}, used: map[int]uint64{1: 5, 2: 1},
		},
		{
			name: "none has room", before: []Charge{hit(1, 9, Enforce, 0)}, charges: choice(2, 1, 6, Enforce, 0), denied: true,
			want: []choiceOutcome{skippedDenied, {Over: true, Denied: true, RetryAfter: window}}, used: map[int]uint64{1: 9},
		},
		{
			name: "none ever has room", charges: choice(2, 3, 6, Enforce, 0), denied: true,
			want: []choiceOutcome{{Over: true, Denied: true, RetryAfter: Never}, skippedDenied},
		},
		{
			name: "shadow", before: []Charge{hit(1, 9, Enforce, 0)}, charges: choice(2, 1, 6, Shadow, 0),
			want: []choiceOutcome{skipped, {Over: true, RetryAfter: window}}, used: map[int]uint64{1: 9},
		},
		{
			name: "0 hits", before: []Charge{hit(2, 5, Enforce, 0)}, charges: choice(2, 1, 0, Enforce, 0),
			want: []choiceOutcome{skipped, {Remaining: 10}}, used: map[int]uint64{2: 5},
		},
		{
			name: "0 hits and none left", before: []Charge{hit(2, 5, Enforce, 0), hit(3, 2, Enforce, 1)}, charges: choice(2, 3, 0, Enforce, 0),
			want: []choiceOutcome{{}, skipped}, used: map[int]uint64{2: 5, 3: 2},
		},
		{
			name: "a quota passes", charges: append(choice(3, 4, 3, Quota, 0), hit(1, 1, Quota, 1)),
			want: []choiceOutcome{{Over: true, RetryAfter: Never}, skipped, {Charged: 1, Remaining: 9}}, used: map[int]uint64{1: 1},
		},
		{
			name: "no quota passes", charges: append(choice(3, 4, 3, Quota, 0), hit(2, 6, Quota, 1)), denied: true,
			want: []choiceOutcome{{Over: true, Denied: true, RetryAfter: Never}, skippedDenied, {Over: true, Denied: true, RetryAfter: Never}},
		},
		{
			name: "in a group, decided last", charges: append(choice(3, 1, 2, Enforce, 0), hit(3, 1, Enforce, 0)),
			want: []choiceOutcome{skipped, {Charged: 2, Remaining: 8}, {Charged: 1, Remaining: 1}}, used: map[int]uint64{1: 2, 3: 1},
		},
		{
			name: "two in a group, on the same counters", charges: append(choice(3, 2, 2, Enforce, 0), choice(3, 2, 2, Enforce, 0)...),
			want: []choiceOutcome{{Charged: 2}, skipped, skipped, {Charged: 2, Remaining: 3}}, used: map[int]uint64{3: 2, 2: 2},
		},
		{
			name: "the second of a group has no room after the first", before: []Charge{hit(1, 1, Enforce, 0)}, denied: true,
			charges: append(choice(3, 1, 5, Enforce, 0), choice(3, 1, 6, Enforce, 0)...),
			want: []choiceOutcome{
				skippedDenied, {Denied: true, Remaining: 9}, skippedDenied, {Over: true, Denied: true, RetryAfter: window},
			},
			used: map[int]uint64{1: 1},
		},
		{
			name: "denied with its group", charges: append(choice(3, 1, 2, Enforce, 0), hit(2, 6, Enforce, 0)), denied: true,
			want: []choiceOutcome{{Denied: true, Remaining: 2}, skippedDenied, {Over: true, Denied: true, RetryAfter: Never}},
		},
		{
			name: "refunds do not cancel its hits", before: []Charge{hit(3, 1, Enforce, 0)}, charges: append(choice(3, 1, 2, Enforce, 0), refund(3, 1, 1)),
			want: []choiceOutcome{skipped, {Charged: 2, Remaining: 8}, {Charged: 1, Remaining: 2}}, used: map[int]uint64{1: 2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := Time(20 * time.Second)
			check := func(t *testing.T, b *Batch) {
				t.Helper()
				var got []choiceOutcome
				for _, d := range b.Decisions {
					got = append(got, choiceOutcome{d.Skipped, d.Over, d.Denied, d.Charged, d.Remaining, d.RetryAfter})
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || b.Denied != tt.denied {
					t.Errorf("denied: %t; decisions (-want +got):\n%s", b.Denied, diff)
				}
			}
			table := newTable(t, 1<<20)
			table.Decide(at, &Batch{Charges: tt.before})
			b, stored := &Batch{Charges: tt.charges}, &Batch{Charges: tt.charges}
			found := make([]State, len(tt.charges))
			stored.Stored().ReadStates(table, at, found)
			stored.Stored().Decide(at, found)
			check(t, stored)
			table.Decide(at, b)
			check(t, b)
			for counter := 1; counter <= 4; counter++ {
				peek := &Batch{Charges: []Charge{hit(counter, 0, Enforce, 0)}}
				if table.Decide(at, peek); peek.Decisions[0].Before != tt.used[counter] {
					t.Errorf("counter %d: %d hits, want %d", counter, peek.Decisions[0].Before, tt.used[counter])
				}
			}
		})
	}
}

// TestChoiceUnderContention has many goroutines use up their shares and a pool: none is denied while
// there is room, and the limits are reached and not exceeded.
func TestChoiceUnderContention(t *testing.T) {
	table := newTable(t, 1<<20)
	const clients, share, pool = 16, 20, 200
	policy := func(limit uint32) *Policy {
		return &Policy{Algorithm: FixedWindow, Limit: limit, Window: time.Minute}
	}
	ownLimit, poolLimit := policy(share), policy(pool)
	var wg sync.WaitGroup
	var admitted [clients]uint64
	for i := range clients {
		wg.Go(func() {
			b := &Batch{}
			for range share + pool {
				b.Reset()
				b.Charges = append(b.Charges,
					Charge{ID: counterID(10 + i), Policy: ownLimit, Hits: 1, Choice: FirstChoice},
					Charge{ID: counterID(1), Policy: poolLimit, Hits: 1, Choice: NextChoice})
				if table.Decide(0, b); !b.Denied {
					admitted[i]++
				}
			}
		})
	}
	wg.Wait()
	total := uint64(0)
	for i, n := range admitted {
		if total += n; n < share {
			t.Errorf("client %d: %d hits admitted, less than its share of %d", i, n, share)
		}
	}
	if want := uint64(clients*share + pool); total != want {
		t.Errorf("%d hits admitted, want %d", total, want)
	}
}
