package limiter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestMergeInto checks that a table that merges the counters of another one decides like it.
func TestMergeInto(t *testing.T) {
	r := seeded(t)
	const base = Time(1_700_000_000_999_999_999)
	for range effort.Times(t, 30) {
		data := make([]byte, 800)
		_, _ = r.Read(data)
		in := tape(data)
		there, mirror := newTable(t, 256<<10), newTable(t, 256<<10)
		mirror.SetMirror()
		var leases []uint64
		now := base
		var found, want, got State
		for len(in) > 0 {
			now += min(max(0, Time(oracleSteps[in.pick(len(oracleSteps))])), Time(24*time.Hour)) // an unused word would overflow after years
			n := in.pick(len(storedPolicies))
			p := &storedPolicies[n]
			if p.Algorithm == SlidingLog {
				continue
			}
			hits := modelHits[in.pick(len(modelHits))]
			if p.Limit > 99 {
				hits = min(hits, 9) * uint64(p.Limit) / 10
			}
			refund := in.pick(5) == 1
			if p.UsesLeases() && len(leases) > 0 && in.pick(2) == 0 {
				hits, refund = leases[max(0, len(leases)-1-in.pick(5))], true
			}
			b := &Batch{
				Charges: []Charge{{ID: counterID(n), Policy: p, Hits: hits, Refund: refund}},
				Budget:  time.Minute,
			}
			states := []State{found}
			b.Stored().OffsetRefunds()
			b.Stored().ReadStates(there, now, states)
			decided := &Batch{Charges: b.Charges, Budget: time.Minute}
			there.Decide(now, decided)
			if setReportedLeases(decided, states); decided.Lease(0) > 0 {
				leases = append(leases, decided.Lease(0))
			}
			b.Stored().Decide(now, states)
			var left State
			b.Stored().StateAfter(now, 0, &left)
			if in.pick(3) > 0 { // the mirror does not see all charges
				b.Stored().MergeInto(mirror, now, 0, &left)
				here := []State{want}
				b.Stored().ReadStates(there, now, here)
				want = here[0]
				here = []State{got}
				b.Stored().ReadStates(mirror, now, here)
				got = here[0]
				if diff := cmp.Diff(countsOf(want), countsOf(got)); diff != "" {
					t.Fatalf("at %d, %s left %+v: the table -, the merged table +:\n%s", now, describe(b.Charges), left, diff)
				}
			}
		}
	}
}

// countsOf is plainState, but without the time of a window without hits.
func countsOf(s State) State {
	if s = plainState(s); s.Counts == nil {
		s.SubWindow = 0
	}
	if s.Hits == 0 && s.Time%Time(time.Second) == 0 {
		s.Time = 0
	}
	return s
}

// TestMergeIntoLog checks that a log receives only the hits of its own charges.
func TestMergeIntoLog(t *testing.T) {
	const now = Time(1_700_000_000_000_000_000)
	p := &Policy{Algorithm: SlidingLog, Limit: 5, Window: time.Minute}
	mirror := newTable(t, 256<<10)
	b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 2}}}
	for range 2 { // the second is denied
		b.Stored().Decide(now, []State{{Hits: 3, Time: now, Stamp: now}})
		var left State
		b.Stored().StateAfter(now, 0, &left)
		b.Stored().MergeInto(mirror, now, 0, &left)
		b.Charges[0].Hits = 3
	}
	peek := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p}}}
	mirror.Decide(now, peek)
	if got := peek.Decisions[0].Before; got != 2 {
		t.Errorf("%d hits in the mirror, want the 2 that were admitted", got)
	}
}

// TestMergeIntoLate checks that a reply from an older window is ignored.
func TestMergeIntoLate(t *testing.T) {
	const end = Time(1_700_000_040_000_000_000)
	p := &Policy{Algorithm: FixedWindow, Limit: 5, Window: time.Minute}
	mirror := newTable(t, 256<<10)
	b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p}}}
	b.Stored().MergeInto(mirror, end, 0, &State{Hits: 2, Time: end + Time(time.Minute)})
	b.Stored().MergeInto(mirror, end, 0, &State{Hits: 4, Time: end})
	mirror.Decide(end, b)
	if got := b.Decisions[0].Before; got != 2 {
		t.Errorf("%d hits, want the 2 of the newer window", got)
	}
}

func TestAdoptAllocatesNothing(t *testing.T) {
	const now = Time(1_700_000_000_000_000_000)
	for i := range storedPolicies {
		p := storedPolicies[i]
		p.Prepare()
		mirror := newTable(t, 256<<10)
		b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: &p, Hits: 1}}}
		found, left := []State{{}}, State{Counts: make([]uint32, 0, 61)}
		at := now
		if n := must.AllocsPerRun(100, func() {
			at += Time(time.Millisecond)
			found[0] = State{Counts: found[0].Counts[:0]}
			b.Stored().Decide(at, found)
			b.Stored().StateAfter(at, 0, &left)
			b.Stored().MergeInto(mirror, at, 0, &left)
		}); n > 0 {
			t.Errorf("policy %d: %v allocations", i, n)
		}
	}
}
