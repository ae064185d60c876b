package limiter

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// reusePolicies returns policies of every algorithm, with reservations and penalties. The policies
// of a row share their counters.
func reusePolicies() [][]*Policy {
	const window = 10 * time.Second
	penalty := NewPenalty(2*time.Second, 5*time.Second, 30*time.Second)
	reserve := func(n uint32, release bool) *Reserve { return NewReserve(n, 2*window, release) }
	calendar := NewCalendar(time.UTC, 31)
	all := [][]*Policy{
		{{Algorithm: FixedWindow, Limit: 10}, {Algorithm: FixedWindow, Limit: math.MaxUint32, CountRefused: true}, {Algorithm: FixedWindow}},
		{{Algorithm: FixedWindow, Limit: 10, CountRefused: true, Penalty: penalty}, {Algorithm: FixedWindow, Limit: 5}},
		{{Algorithm: SlidingWindow, Limit: 10, SubWindows: 5, Penalty: penalty}, {Algorithm: SlidingWindow, Limit: 20, SubWindows: 5}},
		{{Algorithm: SlidingLog, Limit: 10, CountRefused: true}, {Algorithm: SlidingLog, Limit: 7, Penalty: penalty}, {Algorithm: SlidingLog, Limit: 40}},
		{{Algorithm: TokenBucket, Limit: 10, Burst: 5}, {Algorithm: TokenBucket, Limit: 10, Burst: 5, CountRefused: true, Penalty: penalty}},
		{{Algorithm: TokenBucket, Limit: math.MaxUint32, Burst: math.MaxUint32}},
		{{Algorithm: LeakyBucket, Limit: 10, Slack: 2, MaxWait: 3 * time.Second, MaxWaiting: 3}},
		{{Algorithm: Concurrency, Limit: 4}, {Algorithm: Concurrency, Limit: 40}, {Algorithm: Concurrency}},
		{{Algorithm: FixedWindow, Limit: 30, Reserve: reserve(3, true)}, {Algorithm: FixedWindow, Limit: 60, Reserve: reserve(20, false)}},
		{{Algorithm: SlidingWindow, Limit: 30, SubWindows: 4, Reserve: reserve(20, false)}},
		{{Algorithm: TokenBucket, Limit: 30, Burst: 30, Reserve: reserve(20, false), CountRefused: true}, {Algorithm: TokenBucket, Limit: 30, Burst: 30}},
		{{Algorithm: FixedWindow, Limit: 20, Calendar: calendar.WithUnit(Months)}, {Algorithm: FixedWindow, Limit: 9, Calendar: calendar.WithUnit(Months)}},
	}
	for _, row := range all {
		for _, p := range row {
			if p.Window = window; p.Calendar != nil {
				p.Window = 30 * 24 * time.Hour
			}
			p.Prepare()
		}
	}
	return all
}

// overriding returns a copy of p with other numbers, like overrides and table rows.
func overriding(p *Policy, r *rand.Rand) *Policy {
	o := *p
	o.Limit = r.Uint32N(2*min(p.Limit, 1000) + 2)
	if p.Reserve != nil {
		o.Reserve = NewReserve(1+r.Uint32N(9), time.Duration(1+r.IntN(30))*time.Second, p.Reserve.ReleasesWithoutCost())
	}
	return &o
}

// A reuseTrial decides the same charges with a reused batch and with new ones, on separate tables
// with the same contents.
type reuseTrial struct {
	t        *testing.T
	r        *rand.Rand
	now      Time
	policies [][]*Policy
	leases   []Charge // each charge returns a lease

	reused, stored        Batch
	byReused, byFresh     *Table
	mirrored, mirrorFresh *Table
}

// next returns random charges.
func (u *reuseTrial) next() (charges []Charge) {
	r, group := u.r, int32(0)
	for range 1 + r.IntN(5) {
		row := r.IntN(len(u.policies))
		p := u.policies[row][r.IntN(len(u.policies[row]))]
		if r.IntN(4) == 0 {
			p = overriding(p, r)
		}
		c := Charge{
			ID: counterID(100*row + r.IntN(6)), Policy: p, Group: group,
			Hits: []uint64{0, 1, 1, 1, 2, 3, 5, 11, 1 << 32, math.MaxUint64}[r.IntN(10)],
			Mode: []Mode{Enforce, Enforce, Enforce, Shadow, Quota, Watch}[r.IntN(6)],
		}
		switch {
		case p.UsesLeases() && len(u.leases) > 0 && r.IntN(2) == 0:
			mode := c.Mode
			c = u.leases[r.IntN(len(u.leases))]
			if c.Group, c.Mode = group, mode; r.IntN(2) == 0 {
				cost := c
				cost.Refund, cost.Hits = false, r.Uint64N(9)
				charges = append(charges, cost)
			}
		case p.Reserve != nil && r.IntN(4) > 0:
			c.Reserve, c.Hits = true, min(c.Hits, 7)
		case !p.UsesLeases() && r.IntN(5) == 0:
			c.Refund = true
		}
		charges = append(charges, c)
		group += r.Int32N(2)
	}
	return charges
}

// fill sets the inputs of b.
func fill(b *Batch, charges []Charge, quotaPass bool, budget time.Duration, clock func() Time) *Batch {
	b.Reset()
	b.Charges, b.QuotaPass, b.Budget, b.Clock = append(b.Charges, charges...), quotaPass, budget, clock
	return b
}

// compare fails unless both batches were decided alike.
func (u *reuseTrial) compare(how string, reused, fresh *Batch) {
	u.t.Helper()
	diff := cmp.Diff(fresh.Decisions, reused.Decisions)
	for i := range fresh.Decisions {
		if diff == "" && (reused.Lease(i) != fresh.Lease(i) || reused.isSettled(i) != fresh.isSettled(i)) {
			diff = "another lease\n"
		}
	}
	if diff != "" || reused.Denied != fresh.Denied || reused.Wait != fresh.Wait {
		u.t.Fatalf("at %d %s: a new batch -, a reused batch +:\n%s%s", u.now, how, diff, describe(fresh.Charges))
	}
}

func (u *reuseTrial) step() {
	r := u.r
	u.now += Time([]time.Duration{
		0, 0, 1, time.Millisecond, 300 * time.Millisecond, time.Second, -time.Second, 3 * time.Second, 12 * time.Second, 40 * time.Second,
	}[r.IntN(10)])
	charges, quotaPass, budget := u.next(), r.IntN(4) == 0, time.Duration(r.IntN(3))*2*time.Second
	var clock func() Time
	if at := u.now + Time(r.IntN(2e9)); r.IntN(3) == 0 {
		clock = func() Time { return at }
	}
	u.decideStored(charges, quotaPass, budget)

	fresh := fill(&Batch{}, charges, quotaPass, budget, clock)
	u.byFresh.Decide(u.now, fresh)
	u.byReused.Decide(u.now, fill(&u.reused, charges, quotaPass, budget, clock))
	u.compare("decided", &u.reused, fresh)
	for i, c := range charges {
		if lease := fresh.Lease(i); lease > 0 {
			c.Hits, c.Reserve, c.Refund = lease, false, true
			u.leases = append(u.leases[max(0, len(u.leases)-12):], c)
		}
	}
	switch i := r.IntN(len(charges)); r.IntN(12) {
	case 0:
		u.byFresh.Cancel(u.now, fresh)
		u.byReused.Cancel(u.now, &u.reused)
		u.compare("cancelled", &u.reused, fresh)
	case 1:
		used := u.byFresh.Reset(u.now, fill(&Batch{}, charges, false, 0, nil), i)
		if got := u.byReused.Reset(u.now, &u.reused, i); got != used {
			u.t.Fatalf("at %d a reset returns %d used hits, want %d", u.now, got, used)
		}
	case 2:
		if charges[i].Policy.UsesLeases() {
			held := u.byFresh.LeaseStats(u.now, fill(&Batch{}, charges, false, 0, nil), i)
			if got := u.byReused.LeaseStats(u.now, &u.reused, i); got != held {
				u.t.Fatalf("at %d the held hits are %+v, want %+v", u.now, got, held)
			}
		}
	}
}

// decideStored decides charges on simulated store replies, with a reused batch and a new one, and
// merges the result into both tables.
func (u *reuseTrial) decideStored(charges []Charge, quotaPass bool, budget time.Duration) {
	fresh := fill(&Batch{}, charges, quotaPass, budget, nil)
	fill(&u.stored, charges, quotaPass, budget, nil)
	found, left, want := make([]State, len(charges)), make([]State, len(charges)), make([]State, len(charges))
	fresh.Stored().ReadStates(u.byFresh, u.now, found)
	for i := range found {
		s, c := &found[i], &charges[i]
		if s.Stamp = s.Time - Time(u.r.IntN(1e9)); c.Policy.UsesLeases() {
			s.Lease = FirstLease + u.r.Uint64N(1<<20)
			if s.HeldHits, s.Reservations = u.r.Uint64N(20), u.r.Uint64N(4); c.Refund && u.r.IntN(2) == 0 {
				s.Lease, s.SettledHits = c.Hits, u.r.Uint64N(9)
			}
		}
	}
	inTurn := slices.Clone(found)
	for i := range inTurn {
		inTurn[i].Counts = slices.Clone(inTurn[i].Counts)
	}
	fresh.Stored().Decide(u.now, found)
	u.stored.Stored().Decide(u.now, inTurn)
	u.compare("by the states of a store", &u.stored, fresh)
	for i := range charges {
		fresh.Stored().StateAfter(u.now, i, &want[i])
		if u.stored.Stored().StateAfter(u.now, i, &left[i]); !reflect.DeepEqual(plainState(left[i]), plainState(want[i])) {
			u.t.Fatalf("at %d charge %d leaves %+v, want %+v", u.now, i, left[i], want[i])
		}
		again := fill(&Batch{}, charges, quotaPass, budget, nil)
		again.Stored().Decide(u.now, found)
		again.Stored().MergeInto(u.mirrorFresh, u.now, i, &want[i])
		u.stored.Stored().MergeInto(u.mirrored, u.now, i, &left[i])
	}
	fresh.Stored().ReadStates(u.mirrorFresh, u.now, want)
	u.stored.Stored().ReadStates(u.mirrored, u.now, left)
	for i := range charges {
		if !reflect.DeepEqual(plainState(left[i]), plainState(want[i])) {
			u.t.Fatalf("at %d a mirror has %+v of charge %d, want %+v", u.now, left[i], i, want[i])
		}
	}
}

// TestBatchesAreReused decides random batches with one reused batch and with new ones: nothing of
// an earlier request may remain in a batch.
func TestBatchesAreReused(t *testing.T) {
	for seed := range uint64(effort.Times(t, 6)) {
		u := &reuseTrial{t: t, r: rand.New(rand.NewPCG(seed, 40)), policies: reusePolicies(), now: 1_700_000_000 * sec}
		for _, table := range []**Table{&u.byReused, &u.byFresh, &u.mirrored, &u.mirrorFresh} {
			*table = newKeyed(t, []int64{MinBytes, 1 << 20}[seed%2])
		}
		u.mirrored.SetMirror()
		u.mirrorFresh.SetMirror()
		for range 300 {
			u.step()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// newKeyed returns a table with a fixed key, so that tables of equal size evict the same counters.
func newKeyed(tb testing.TB, bytes int64) *Table {
	tb.Helper()
	t, err := New(Options{Bytes: bytes, Key: identity.Key{1}})
	must.OK(tb, err)
	t.nonces = testNonces
	return t
}

// TestReadSetsAllOfAView reads counters into a used view and into a new one.
func TestReadSetsAllOfAView(t *testing.T) {
	used := view{
		class: &sizeClass{}, slot: &slot{}, index: 1, word: 2, head: 3, newer: 4, held: 7, undone: 1, misplaced: true, mirror: true, reported: &State{}, at: 5, salt: 6,
		state: state{6, 7, 8},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(used)) {
		if reflect.ValueOf(used).FieldByIndex(field.Index).IsZero() {
			t.Fatalf("%s is not set in the view of another counter", field.Name)
		}
	}
	tab := newTable(t, 1<<20)
	for n, row := range reusePolicies() {
		c := Charge{ID: counterID(n), Policy: row[0], Hits: 1}
		for _, b := range []*Batch{
			{table: tab, Charges: []Charge{c}}, // absent
			decide(tab, benchNow, c),
			{table: tab, Charges: []Charge{{ID: c.ID, Policy: row[len(row)-1]}}}, // perhaps in another size class
		} {
			for _, at := range []Time{benchNow, benchNow + 3*sec, benchNow + Time(366*24*time.Hour)} {
				got, want := used, view{}
				b.read(at, 0, &got)
				if b.read(at, 0, &want); got != want {
					t.Errorf("policy %+v at %d: read %+v, want %+v", *b.Charges[0].Policy, at, got, want)
				}
			}
		}
	}
}

// TestResetDecisionsClears resets the decisions of a decided batch for other charges.
func TestResetDecisionsClears(t *testing.T) {
	p := reserving(100, 10, false)["token bucket"]
	b := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 5, Reserve: true}, {ID: counterID(2), Policy: p, Hits: 5, Group: 1}}}
	tab := newTable(t, 1<<20)
	tab.Decide(benchNow, b)
	fill(b, []Charge{{ID: counterID(3), Policy: p, Hits: 7, Reserve: true}}, false, 0, nil).Stored().ResetDecisions()
	if b.Decisions[0] != (Decision{}) || b.Lease(0) > 0 || b.Stored().Settled(0) || b.Stored().Hits(0) != 7 {
		t.Errorf("after ResetDecisions: %+v, lease %d, settled %v, %d hits", b.Decisions[0], b.Lease(0), b.Stored().Settled(0), b.Stored().Hits(0))
	}
}
