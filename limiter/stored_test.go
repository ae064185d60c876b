package limiter

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// A logTracker tracks the hits of a table's logs, to simulate the replies of a store.
type logTracker struct {
	tab  *Table
	logs map[*Policy][]Time // the hits of a log, oldest first, by the policy of its counter
}

// stamp adds to found the stamps of logs that b needs if it is decided as in decided: the number of
// hits at the time of a charge is only known from the decisions.
func (h *logTracker) stamp(tb testing.TB, now Time, b *Batch, decided []Decision, found []State) {
	tb.Helper()
	own, expired := map[*Policy]int{}, map[*Policy]int{}
	for i := range b.Charges {
		c, d := &b.Charges[i], &decided[i]
		p := c.Policy
		if p.Algorithm != SlidingLog {
			continue
		}
		live, at := h.live(now, p)
		if found[i].Hits != uint64(len(live)) {
			tb.Fatalf("at %d: the table's log has %d hits, want %d", now, found[i].Hits, len(live))
		}
		limit := int(p.Limit)
		hits := int(min(b.Stored().Hits(i), uint64(limit)+1))
		switch {
		case c.Refund:
			expired[p] += min(hits, len(live)-expired[p])
		case p.CountRefused:
			own[p] += min(hits, limit)
		default:
			own[p] = max(0, int(d.Before)-len(live))
		}
		// The hits that count after the charge, including those of the batch.
		all := append(slices.Clone(live), slices.Repeat([]Time{at}, own[p])...)
		all = all[max(0, len(all)-limit):]
		switch n := len(all) + hits - limit; {
		case expired[p] > 0 && expired[p] < len(live):
			found[i].Stamp = live[len(live)-expired[p]-1]
		case d.Over && hits <= limit:
			found[i].Stamp = all[n-1]
		}
	}
}

// notBeforeChanges returns now, or the time of the last change of b's logs if that is later. A
// table counts a late hit at the last change of its log, including refunds. A State does not
// contain that time, since a store uses its own clock.
func (h *logTracker) notBeforeChanges(now Time, b *Batch) Time {
	var v view
	for i := range b.Charges {
		if b.Charges[i].Policy.Algorithm == SlidingLog {
			(&Batch{table: h.tab, Charges: b.Charges, Partition: b.Partition}).read(now, i, &v)
			if now = max(now, Time(v.mark)); v.slot != nil { // also if the log began too far ahead
				now = max(now, Time(v.class.noteAt(v.index).end.Load()-b.Charges[i].Policy.window()))
			}
		}
	}
	return now
}

// live returns the hits of a log that count, and their newest time.
func (h *logTracker) live(now Time, p *Policy) (live []Time, at Time) {
	all := h.logs[p]
	if at = now; len(all) > 0 {
		at = max(at, all[len(all)-1])
	}
	live = slices.DeleteFunc(slices.Clone(all), func(t Time) bool { return t <= at-Time(p.Window) })
	return live[max(0, len(live)-int(p.Limit)):], at
}

// apply applies the decisions of the table to the logs, after b's refunds were offset. It adds to
// found the stamps that remain in each log after refunds have given back offset hits that do not
// count.
func (h *logTracker) apply(now Time, b *Batch, decided *Batch, found []State) {
	for i := range decided.Charges {
		c, d := &decided.Charges[i], &decided.Decisions[i]
		if c.Policy.Algorithm != SlidingLog {
			continue
		}
		live, at := h.live(now, c.Policy)
		switch hits := int(min(b.Stored().Hits(i), uint64(c.Policy.Limit))); {
		case c.Refund:
			if hits = min(hits, len(live)); hits == 0 {
				continue
			}
			live = live[:len(live)-hits]
		case (d.Over || d.Denied) && !c.Policy.CountRefused, hits == 0:
			continue // nothing is written, so hits excluded at a later time may count again
		default:
			live = append(live, slices.Repeat([]Time{at}, hits)...)
			live = live[max(0, len(live)-int(c.Policy.Limit)):]
		}
		h.logs[c.Policy] = live
	}
	for _, set := range b.Stored().Offsets() {
		p, d := decided.Charges[set.Refund].Policy, &decided.Decisions[set.Charge]
		if p.Algorithm != SlidingLog || decided.Charges[set.Charge].Policy.CountRefused || !d.Over && !d.Denied {
			continue
		}
		live, _ := h.live(now, p)
		if hits := min(set.Hits, uint64(len(live))); hits > 0 {
			live = live[:len(live)-int(hits)]
			h.logs[p] = live
		}
		if len(live) > 0 {
			found[set.Refund].RefundStamp = live[len(live)-1]
		}
	}
}

// storedPolicies are the policies of TestStoredDecide, one per number.
var storedPolicies = []Policy{
	{Algorithm: FixedWindow, Limit: 5, Window: time.Minute},
	{Algorithm: FixedWindow, Limit: 9, Window: time.Second, CountRefused: true},
	{Algorithm: FixedWindow, Limit: 0, Window: time.Second},
	{Algorithm: SlidingWindow, Limit: 5, Window: time.Second, SubWindows: 10},
	{Algorithm: SlidingWindow, Limit: 9, Window: 7 * time.Second, SubWindows: 7, CountRefused: true},
	{Algorithm: SlidingWindow, Limit: math.MaxUint32, Window: time.Second, SubWindows: 60, CountRefused: true},
	{Algorithm: SlidingLog, Limit: 5, Window: time.Second},
	{Algorithm: SlidingLog, Limit: 9, Window: time.Minute, CountRefused: true},
	{Algorithm: SlidingLog, Limit: 0, Window: time.Minute},
	{Algorithm: TokenBucket, Limit: 7, Window: time.Second, Burst: 5},
	{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 9, CountRefused: true},
	{Algorithm: TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: math.MaxUint32},
	{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 3, MaxWait: 50 * time.Millisecond, MaxWaiting: 3},
	{Algorithm: LeakyBucket, Limit: 30, Window: time.Second, MaxWait: time.Minute, MaxWaiting: 100, CountRefused: true},
	{Algorithm: LeakyBucket, Limit: 3e6, Window: time.Second, Slack: 9, MaxWait: time.Second, MaxWaiting: 9},
	{Algorithm: Concurrency, Limit: 3, Window: time.Minute},
	{Algorithm: Concurrency, Limit: 0, Window: time.Second},
}

// setReportedLeases sets in found the leases that a store would report for charges decided by a
// table.
func setReportedLeases(decided *Batch, found []State) {
	for i := range decided.Charges {
		c := &decided.Charges[i]
		if found[i].Lease = decided.Lease(i); c.Refund && c.Policy.UsesLeases() && decided.Decisions[i].Charged > 0 {
			found[i].Lease = c.Hits
		}
	}
}

// playStored plays a tape to a table and decides a second batch from simulated replies of a store.
// Both batches must decide alike and leave the same counters.
func playStored(tb testing.TB, data []byte) {
	tb.Helper()
	in := tape(data)
	policies := slices.Clone(storedPolicies)
	for i := range policies {
		if in.pick(2) == 0 {
			policies[i].Prepare()
		}
	}
	h := &logTracker{tab: newTable(tb, 256<<10), logs: map[*Policy][]Time{}}
	now := Time(1_700_000_000_999_999_999)
	var plain, stored Batch
	var found, left, want []State
	var leases []uint64
	for step := 0; len(in) > 0 && step < 200; step++ {
		if d := Time(oracleSteps[in.pick(len(oracleSteps))]); now < 3e18 {
			now += d
		}
		plain.Reset()
		plain.QuotaPass = in.pick(8) == 1
		plain.Budget = []time.Duration{time.Minute, 0, 20 * time.Millisecond}[in.pick(3)]
		kinds, group := 1+in.pick(len(policies)), int32(0)
		for range 1 + in.pick(6) {
			n := in.pick(kinds)
			hits := modelHits[in.pick(len(modelHits))]
			refund := in.pick(6) == 1
			if p := &policies[n]; in.pick(4) == 0 && p.Limit > 99 {
				hits = min(hits, 9) * uint64(p.Limit) / 10
			} else if p.UsesLeases() && len(leases) > 0 && in.pick(2) == 0 {
				hits, refund = leases[in.pick(len(leases))], true
			}
			plain.Charges = append(plain.Charges, Charge{
				ID: counterID(n), Policy: &policies[n], Hits: hits, Refund: refund,
				Mode: []Mode{Enforce, Enforce, Shadow, Quota, Watch}[in.pick(5)], Group: group,
			})
			if in.pick(3) > 0 {
				group++
			}
		}
		if slices.ContainsFunc(plain.Charges, func(c Charge) bool { return c.Policy.UsesLeases() }) {
			// Groups that acquire leases are decided last, which logTracker does not model; a test
			// of package store covers both.
			plain.Charges = slices.DeleteFunc(plain.Charges, func(c Charge) bool { return c.Policy.Algorithm == SlidingLog })
		}
		n := len(plain.Charges)
		now = h.notBeforeChanges(now, &plain)
		stored.Reset()
		stored.Charges = append(stored.Charges, plain.Charges...)
		stored.QuotaPass, stored.Budget = plain.QuotaPass, plain.Budget
		stored.Clock = func() Time { tb.Error("Stored.Decide reads a clock"); return 0 }
		for len(found) < n {
			found, left, want = append(found, State{}), append(left, State{}), append(want, State{})
		}
		stored.Stored().OffsetRefunds()
		stored.Stored().ReadStates(h.tab, now, found[:n])
		h.tab.Decide(now, &plain)
		h.stamp(tb, now, &stored, plain.Decisions, found[:n])
		h.apply(now, &stored, &plain, found[:n])
		setReportedLeases(&plain, found)
		for i := range n {
			if lease := plain.Lease(i); lease > 0 {
				leases = append(leases, lease)
			}
		}
		stored.Stored().Decide(now, found[:n])
		if diff := cmp.Diff(plain.Decisions, stored.Decisions); diff != "" || plain.Denied != stored.Denied || plain.Wait != stored.Wait {
			tb.Fatalf("step %d at %d, budget %v, QuotaPass %v, charges\n%s\nDenied %v and %v, Wait %v and %v; table -, stored +:\n%s",
				step, now, plain.Budget, plain.QuotaPass, describe(plain.Charges), plain.Denied, stored.Denied, plain.Wait, stored.Wait, diff)
		}
		plain.Stored().ReadStates(h.tab, now, want[:n])
		for i := range n {
			stored.Stored().StateAfter(now, i, &left[i])
			if diff := cmp.Diff(plainState(want[i]), plainState(left[i])); diff != "" {
				tb.Fatalf("step %d at %d: charge %d leaves another state; table -, stored +:\n%s", step, now, i, diff)
			}
		}
	}
}

// plainState returns s without trailing counts of 0.
func plainState(s State) State {
	for len(s.Counts) > 0 && s.Counts[len(s.Counts)-1] == 0 {
		s.Counts = s.Counts[:len(s.Counts)-1]
	}
	if len(s.Counts) == 0 {
		s.Counts = nil
	}
	return s
}

// TestStoredDecide plays random tapes. LIMITER_SEED repeats a failure.
func TestStoredDecide(t *testing.T) {
	r := seeded(t)
	for range effort.Times(t, 150) {
		data := make([]byte, 1000)
		_, _ = r.Read(data)
		playStored(t, data)
	}
}

func FuzzStoredDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("several charges, refunds and groups in one batch, and again, and again"))
	f.Fuzz(func(t *testing.T, data []byte) { playStored(t, data) })
}

// TestStoredDecideBuckets checks that a stored TAT is valid for policies of either unit, without
// expiry.
func TestStoredDecideBuckets(t *testing.T) {
	const now = Time(1_700_000_000_000_000_000)
	coarse := &Policy{Algorithm: TokenBucket, Limit: 1, Window: time.Second, Burst: 10}
	precise := &Policy{Algorithm: TokenBucket, Limit: 1e9, Window: time.Second, Burst: 1000}
	for _, tt := range []struct {
		name   string
		p      *Policy
		found  State
		before uint64
	}{
		{"absent", coarse, State{}, 0},
		{"passed", coarse, State{Time: now - 1, Sixteenths: 15}, 0},
		{"now", coarse, State{Time: now}, 0},
		{"one interval", coarse, State{Time: now + Time(time.Second)}, 1},
		{"one interval and a sixteenth", coarse, State{Time: now + Time(time.Second), Sixteenths: 1}, 2},
		{"a nanosecond is the interval", precise, State{Time: now + 7}, 7},
		{"an interval of a nanosecond and a sixteenth", precise, State{Time: now + 7, Sixteenths: 1}, 8},
		{"a clock that was set back", coarse, State{Time: math.MaxInt64}, 0},
	} {
		b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: tt.p}}}
		b.Stored().Decide(now, []State{tt.found})
		if got := b.Decisions[0].Before; got != tt.before {
			t.Errorf("%s: %d hits before, want %d", tt.name, got, tt.before)
		}
	}
}

// TestStoredDecideLate checks that a store may decide shortly after the end of the window that its
// caller named.
func TestStoredDecideLate(t *testing.T) {
	const end = Time(1_700_000_040_000_000_000)
	p := &Policy{Algorithm: FixedWindow, Limit: 3, Window: time.Minute}
	b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 1}}}
	b.Stored().Decide(end+1, []State{{Hits: 3, Time: end}})
	if d := b.Decisions[0]; !d.Over || d.Before != 3 || d.Reset != 1 || d.RetryAfter != 1 {
		t.Errorf("decided %+v, want a denial by the window that has ended, and a reset in 1 ns", d)
	}
}

// TestDecideAfterStoredDecide decides in a table a batch that was decided before on reported
// counters. The counts of a reported sliding window must not be written to other counters.
func TestDecideAfterStoredDecide(t *testing.T) {
	p := &Policy{Algorithm: SlidingWindow, Limit: 5, Window: time.Second, SubWindows: 10}
	const at, step = Time(1_900_000_000_000_000_000), Time(100 * time.Millisecond)
	b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 1}}}
	b.Stored().Decide(at, []State{{SubWindow: int64(at / step), Counts: []uint32{1, 2, 1}}})
	table, other := newTable(t, 256<<10), newTable(t, 256<<10)
	for n := range Time(20) {
		b.Charges = []Charge{{ID: counterID(1), Policy: p, Hits: 1}}
		fresh := &Batch{Charges: b.Charges}
		table.Decide(at+n*step, b)
		other.Decide(at+n*step, fresh)
		if diff := cmp.Diff(fresh.Decisions, b.Decisions); diff != "" {
			t.Fatalf("hit %d: with a new batch -, with a batch decided on reported counters +:\n%s", n, diff)
		}
	}
}
