package limiter

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An outcome is the part of a decision that group tests compare.
type outcome struct {
	Over, Denied    bool
	Before, Charged uint64
	Remaining       uint64
}

func outcomes(b *Batch) []outcome {
	var o []outcome
	for _, d := range b.Decisions {
		o = append(o, outcome{d.Over, d.Denied, d.Before, d.Charged, d.Remaining})
	}
	return o
}

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

func TestGroups(t *testing.T) {
	tests := []struct {
		name      string
		before    []Charge // charges of an earlier batch
		charges   []Charge
		quotaPass bool
		want      []outcome
		denied    bool
		used      map[int]uint64 // usage after the batch, by counter
	}{
		{
			name:    "all fit",
			charges: []Charge{hit(1, 1, Enforce, 0), hit(2, 1, Enforce, 0)},
			want:    []outcome{{Charged: 1, Remaining: 9}, {Charged: 1, Remaining: 4}},
			used:    map[int]uint64{1: 1, 2: 1},
		},
		{
			name:    "one does not fit and none is charged",
			charges: []Charge{hit(1, 3, Enforce, 0), hit(3, 3, Enforce, 0), hit(2, 3, Enforce, 0)},
			want: []outcome{
				{Denied: true, Remaining: 10},
				{Over: true, Denied: true},
				{Denied: true, Remaining: 5},
			},
			denied: true,
			used:   map[int]uint64{1: 0, 2: 0, 3: 0},
		},
		{
			name:    "groups do not see each other",
			charges: []Charge{hit(1, 3, Enforce, 0), hit(2, 3, Enforce, 0), hit(1, 3, Enforce, 1), hit(3, 3, Enforce, 1)},
			want: []outcome{
				{Charged: 3, Remaining: 7},
				{Charged: 3, Remaining: 2},
				{Denied: true, Before: 3, Remaining: 7},
				{Over: true, Denied: true},
			},
			denied: true,
			used:   map[int]uint64{1: 3, 2: 3, 3: 0},
		},
		{
			name:    "a shadow charge that does not fit denies nothing",
			charges: []Charge{hit(3, 3, Shadow, 0), hit(1, 3, Enforce, 0)},
			want:    []outcome{{Over: true}, {Charged: 3, Remaining: 7}},
			used:    map[int]uint64{1: 3, 3: 0},
		},
		{
			name:    "a shadow charge fits in a denied group",
			charges: []Charge{hit(1, 1, Shadow, 0), hit(4, 1, Enforce, 0)},
			want:    []outcome{{Denied: true, Remaining: 10}, {Over: true, Denied: true}},
			denied:  true,
			used:    map[int]uint64{1: 0},
		},
		{
			name:    "a peek decides with the others",
			before:  []Charge{hit(12, 3, Enforce, 0)},
			charges: []Charge{hit(1, 1, Enforce, 0), hit(12, 0, Enforce, 0)},
			want:    []outcome{{Denied: true, Remaining: 10}, {Over: true, Denied: true, Before: 3}},
			denied:  true,
			used:    map[int]uint64{1: 0},
		},
		{
			name:    "the same counter twice and both fit",
			charges: []Charge{hit(2, 2, Enforce, 0), hit(2, 3, Enforce, 0)},
			want:    []outcome{{Charged: 2, Remaining: 3}, {Before: 2, Charged: 3}},
			used:    map[int]uint64{2: 5},
		},
		{
			name:    "the same counter twice and only one fits",
			charges: []Charge{hit(2, 2, Enforce, 0), hit(2, 4, Enforce, 0)},
			want:    []outcome{{Denied: true, Remaining: 5}, {Over: true, Denied: true, Before: 2}},
			denied:  true,
			used:    map[int]uint64{2: 0},
		},
		{
			name:    "the same counter twice and the second in shadow",
			charges: []Charge{hit(2, 2, Enforce, 0), hit(2, 4, Shadow, 0), hit(2, 3, Enforce, 0)},
			want:    []outcome{{Charged: 2, Remaining: 3}, {Over: true, Before: 2}, {Before: 2, Charged: 3}},
			used:    map[int]uint64{2: 5},
		},
		{
			name:    "the same counter in two groups",
			charges: []Charge{hit(2, 3, Enforce, 0), hit(2, 3, Enforce, 1), hit(2, 2, Enforce, 2)},
			want:    []outcome{{Charged: 3, Remaining: 2}, {Over: true, Denied: true, Before: 3}, {Before: 3, Charged: 2}},
			denied:  true,
			used:    map[int]uint64{2: 5},
		},
		{
			name:    "denied hits count independently of the group",
			charges: []Charge{hit(11, 4, Enforce, 0), hit(12, 3, Enforce, 0), hit(1, 1, Enforce, 0)},
			want: []outcome{
				{Denied: true, Charged: 4, Remaining: 6},
				{Over: true, Denied: true, Charged: 3},
				{Denied: true, Remaining: 10},
			},
			denied: true,
			used:   map[int]uint64{11: 4, 12: 3, 1: 0},
		},
		{
			name:    "one quota is left",
			charges: []Charge{hit(4, 1, Quota, 0), hit(1, 1, Quota, 1)},
			want:    []outcome{{Over: true}, {Charged: 1, Remaining: 9}},
			used:    map[int]uint64{1: 1},
		},
		{
			name:    "no quota is left",
			charges: []Charge{hit(4, 1, Quota, 0), hit(3, 3, Quota, 1), hit(1, 1, Enforce, 2)},
			want:    []outcome{{Over: true, Denied: true}, {Over: true, Denied: true}, {Charged: 1, Remaining: 9}},
			denied:  true,
			used:    map[int]uint64{1: 1, 3: 0},
		},
		{
			name:      "only another quota outside of the batch is left",
			charges:   []Charge{hit(4, 1, Quota, 0), hit(3, 3, Quota, 1)},
			quotaPass: true,
			want:      []outcome{{Over: true}, {Over: true}},
		},
		{
			name:    "the group of an exhausted quota charges nothing",
			charges: []Charge{hit(1, 1, Enforce, 0), hit(4, 1, Quota, 0)},
			want:    []outcome{{Denied: true, Remaining: 10}, {Over: true, Denied: true}},
			denied:  true,
			used:    map[int]uint64{1: 0},
		},
		{
			name:      "the quota is exhausted but another outside of the batch is not",
			charges:   []Charge{hit(1, 1, Enforce, 0), hit(4, 1, Quota, 0)},
			quotaPass: true,
			want:      []outcome{{Charged: 1, Remaining: 9}, {Over: true}},
			used:      map[int]uint64{1: 1},
		},
		{
			name:    "the quota of a later group is left",
			charges: []Charge{hit(1, 1, Enforce, 0), hit(4, 1, Quota, 0), hit(2, 1, Quota, 1)},
			want:    []outcome{{Charged: 1, Remaining: 9}, {Over: true}, {Charged: 1, Remaining: 4}},
			used:    map[int]uint64{1: 1, 2: 1},
		},
		{
			// The quota of counter 3 is within its limit until the first group charges it.
			name:    "the batch exhausts a quota and its group is undone",
			charges: []Charge{hit(3, 2, Enforce, 0), hit(1, 1, Enforce, 1), hit(3, 1, Quota, 1), hit(2, 1, Enforce, 2)},
			want: []outcome{
				{Charged: 2},
				{Denied: true, Remaining: 10},
				{Over: true, Denied: true, Before: 2},
				{Charged: 1, Remaining: 4},
			},
			denied: true,
			used:   map[int]uint64{1: 0, 2: 1, 3: 2},
		},
		{
			name:    "a refund in a denied group",
			before:  []Charge{hit(1, 6, Enforce, 0)},
			charges: []Charge{refund(1, 2, 0), hit(4, 1, Enforce, 0)},
			want:    []outcome{{Denied: true, Before: 6, Charged: 2, Remaining: 6}, {Over: true, Denied: true}},
			denied:  true,
			used:    map[int]uint64{1: 4},
		},
		{
			name:    "a refund is offset first",
			before:  []Charge{hit(2, 4, Enforce, 0)},
			charges: []Charge{hit(2, 3, Enforce, 0), refund(2, 5, 1)},
			want:    []outcome{{Before: 4, Remaining: 1}, {Before: 4, Charged: 5, Remaining: 3}},
			used:    map[int]uint64{2: 2},
		},
		{
			name:    "a refund is offset against the earliest charges",
			charges: []Charge{hit(2, 2, Enforce, 0), hit(2, 3, Enforce, 1), refund(2, 3, 2), hit(2, 9, Enforce, 3)},
			want: []outcome{
				{Remaining: 5},
				{Charged: 2, Remaining: 3},
				{Before: 2, Charged: 3, Remaining: 3},
				{Over: true, Denied: true, Before: 2},
			},
			denied: true,
			used:   map[int]uint64{2: 2},
		},
		{
			name:    "two refunds are offset in order",
			charges: []Charge{refund(2, 1, 0), hit(2, 4, Enforce, 1), refund(2, 2, 2)},
			want:    []outcome{{Charged: 1, Remaining: 5}, {Charged: 1, Remaining: 4}, {Before: 1, Charged: 2, Remaining: 4}},
			used:    map[int]uint64{2: 1},
		},
		{
			name:    "a refund is offset within a group",
			charges: []Charge{hit(2, 7, Enforce, 0), refund(2, 3, 0), hit(1, 1, Enforce, 0)},
			want:    []outcome{{Charged: 4, Remaining: 1}, {Before: 4, Charged: 3, Remaining: 1}, {Charged: 1, Remaining: 9}},
			used:    map[int]uint64{1: 1, 2: 4},
		},
		{
			name:    "huge hits",
			charges: []Charge{hit(1, 1, Enforce, 0), hit(1, math.MaxUint64, Enforce, 0), refund(2, math.MaxUint64, 0)},
			want:    []outcome{{Denied: true, Remaining: 10}, {Over: true, Denied: true, Before: 1}, {Denied: true, Remaining: 5}},
			denied:  true,
			used:    map[int]uint64{1: 0},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab := newTable(t, MinBytes)
			decide(tab, min1, tt.before...)
			b := &Batch{Charges: tt.charges, QuotaPass: tt.quotaPass}
			tab.Decide(min1+1, b)
			if diff := cmp.Diff(tt.want, outcomes(b)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			if b.Denied != tt.denied {
				t.Errorf("Denied = %v, want %v", b.Denied, tt.denied)
			}
			for counter, want := range tt.used {
				if got := used(tab, min1+1, counter); got != want {
					t.Errorf("counter %d has used %d, want %d", counter, got, want)
				}
			}
		})
	}
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
