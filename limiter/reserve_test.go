package limiter

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// reserving returns policies with the given limit and reservations, one for each algorithm.
func reserving(budget uint32, reservations uint32, release bool) map[string]*Policy {
	policies := map[string]*Policy{
		"fixed window":   {Algorithm: FixedWindow, Window: time.Hour},
		"sliding window": {Algorithm: SlidingWindow, Window: time.Hour, SubWindows: 10},
		"token bucket":   {Algorithm: TokenBucket, Window: time.Hour, Burst: budget},
	}
	for _, p := range policies {
		p.Limit, p.Reserve = budget, NewReserve(reservations, time.Minute, release)
		p.Prepare()
	}
	return policies
}

// A budget is a counter with reservations.
type budget struct {
	table *Table
	id    identity.ID
	p     *Policy
}

func newBudget(t *testing.T, p *Policy) *budget {
	t.Helper()
	must.OK(t, p.Validate())
	return &budget{newTable(t, 1<<20), identity.ID{Hi: 5 << 40, Lo: 77}, p}
}

// reserve returns the lease of a reservation, or 0.
func (g *budget) reserve(now Time, hits uint64) uint64 {
	b := &Batch{Charges: []Charge{{ID: g.id, Policy: g.p, Hits: hits, Reserve: true}}}
	g.table.Decide(now, b)
	return b.Lease(0)
}

// settleLease returns a lease, with the given costs except negative ones. Its result is the number
// of hits that the lease held.
func (g *budget) settleLease(now Time, lease uint64, costs ...int64) uint64 {
	b := &Batch{Charges: []Charge{{ID: g.id, Policy: g.p, Hits: lease, Refund: true}}}
	for i, cost := range costs {
		if cost >= 0 {
			b.Charges = append(b.Charges, Charge{ID: g.id, Policy: g.p, Hits: uint64(cost), Group: int32(i + 1)})
		}
	}
	g.table.Decide(now, b)
	return b.Decisions[0].Charged
}

// used returns the used and reserved hits.
func (g *budget) used(now Time) uint64 {
	b := &Batch{Charges: []Charge{{ID: g.id, Policy: g.p, Reserve: true}}}
	g.table.Decide(now, b)
	return b.Decisions[0].Before
}

func TestReservationsAreSettled(t *testing.T) {
	for name, p := range reserving(100, 10, false) {
		t.Run(name, func(t *testing.T) {
			g := newBudget(t, p)
			first, second := g.reserve(benchNow, 40), g.reserve(benchNow, 40)
			if first == 0 || second == 0 || g.reserve(benchNow, 40) != 0 {
				t.Fatal("want exactly two reservations of 40 of 100 hits")
			}
			for _, step := range []struct {
				does string
				got  uint64
				want uint64
			}{
				{"used hits with both reservations", g.used(benchNow), 80},
				{"settle the first with a cost of 5", g.settleLease(benchNow, first, 5), 40},
				{"used hits after that", g.used(benchNow), 45},
				{"settle the first again", g.settleLease(benchNow, first, 0), 0},
				{"used hits after the second attempt", g.used(benchNow), 45},
				{"settle the second with a cost of 90", g.settleLease(benchNow, second, 90), 40},
				{"used hits at the end", g.used(benchNow), 95},
			} {
				if step.got != step.want {
					t.Errorf("%s: %d, want %d", step.does, step.got, step.want)
				}
			}
			if g.reserve(benchNow, 6) != 0 || g.reserve(benchNow, 5) == 0 {
				t.Error("with 95 of 100 hits used, 6 can be reserved or 5 cannot")
			}
		})
	}
}

// TestCostsBeyondReservations settles reservations with costs that exceed their hits. A cost may
// consist of several charges.
func TestCostsBeyondReservations(t *testing.T) {
	for name, p := range reserving(100, 10, false) {
		t.Run(name, func(t *testing.T) {
			g := newBudget(t, p)
			if g.settleLease(benchNow, g.reserve(benchNow, 60), 90, 0, 40) != 60 {
				t.Error("a cost beyond the limit does not settle the lease")
			}
			if used := g.used(benchNow); used != 130 {
				t.Errorf("%d hits are used after a cost of 130", used)
			}
			if g.reserve(benchNow, 1) != 0 {
				t.Error("a counter beyond its limit admits a reservation")
			}
		})
	}
}

func TestUnsettledReservations(t *testing.T) {
	for name, release := range map[string]bool{"keep": false, "release": true} {
		for algorithm, p := range reserving(100, 10, release) {
			t.Run(name+"/"+algorithm, func(t *testing.T) {
				g := newBudget(t, p)
				lease := g.reserve(benchNow, 40)
				if held := g.settleLease(benchNow, lease, -1); held != 40 {
					t.Errorf("a lease returned without a cost held %d", held)
				}
				want := uint64(40)
				if release {
					want = 0
				}
				if used := g.used(benchNow); used != want {
					t.Errorf("%d hits are used, want %d", used, want)
				}
			})
		}
	}
}

// TestReservationsRace reserves and settles on many goroutines, with the reserved hits as the cost,
// and checks that the limit is never exceeded.
func TestReservationsRace(t *testing.T) {
	for name, p := range reserving(1000, 100, true) {
		t.Run(name, func(t *testing.T) {
			g := newBudget(t, p)
			var group sync.WaitGroup
			spent := make([]uint64, 4*runtime.GOMAXPROCS(0))
			for n := range spent {
				group.Go(func() {
					r := rand.New(rand.NewPCG(uint64(n), 7))
					for range 3000 {
						amount := 10 + r.Uint64N(20)
						if lease := g.reserve(benchNow, amount); lease > 0 {
							cost := int64(r.Uint64N(3)) - 1
							if g.settleLease(benchNow, lease, cost) != amount {
								t.Errorf("lease %d did not hold %d hits", lease, amount)
							}
							spent[n] += uint64(max(cost, 0))
						}
					}
				})
			}
			group.Wait()
			total := uint64(0)
			for _, n := range spent {
				total += n
			}
			if used := g.used(benchNow); used != total {
				t.Errorf("%d hits are used, but the total cost is %d", used, total)
			}
		})
	}
}

// TestReservationsOfGroups denies a reservation by another charge of its group or by another group.
func TestReservationsOfGroups(t *testing.T) {
	full := &Policy{Algorithm: FixedWindow, Window: time.Hour}
	for name, p := range reserving(100, 10, false) {
		for _, group := range []int32{0, 1} {
			g := newBudget(t, p)
			b := &Batch{Charges: []Charge{
				{ID: g.id, Policy: p, Hits: 40, Reserve: true}, {ID: identity.ID{Hi: 9 << 40, Lo: 1}, Policy: full, Hits: 1, Group: group},
			}}
			g.table.Decide(benchNow, b)
			if !b.Denied || b.HasLease() || g.used(benchNow) != 0 {
				t.Errorf("%s, group %d: denied is %v and %d hits are held", name, group, b.Denied, g.used(benchNow))
			}
			b = &Batch{Charges: []Charge{
				{ID: g.id, Policy: p, Hits: 40, Reserve: true},
				{ID: g.id, Policy: p, Hits: 50, Reserve: true},
				{ID: identity.ID{Hi: 9 << 40, Lo: 1}, Policy: full, Hits: 1, Mode: Shadow},
			}}
			if g.table.Decide(benchNow, b); b.Denied || g.used(benchNow) != 90 {
				t.Errorf("%s: two reservations of one group: denied is %v and %d hits are held", name, b.Denied, g.used(benchNow))
			}
			if g.table.Cancel(benchNow, b); g.used(benchNow) != 0 {
				t.Errorf("%s: %d hits are held after both were cancelled", name, g.used(benchNow))
			}
		}
	}
}

// TestReserveAndHitInOneGroup reserves on a counter that its group also charges, under a policy
// without reservations.
func TestReserveAndHitInOneGroup(t *testing.T) {
	for name, p := range reserving(10, 10, false) {
		plain := *p
		plain.Reserve = nil
		for hits, admits := range map[uint64]bool{4: true, 5: false} {
			g := newBudget(t, p)
			g.reserve(benchNow, 3)
			b := &Batch{Charges: []Charge{{ID: g.id, Policy: &plain, Hits: 3}, {ID: g.id, Policy: p, Hits: hits, Reserve: true}}}
			if g.table.Decide(benchNow, b); b.Denied == admits {
				t.Errorf("%s: with 3 of 10 reserved, 3 hits and a reservation of %d: denied is %v", name, hits, b.Denied)
			}
		}
	}
}

// TestHoldsOutliveWindows checks that a reservation counts in the window after its own.
func TestHoldsOutliveWindows(t *testing.T) {
	p := reserving(100, 10, false)["fixed window"]
	p.Window = time.Second
	g := newBudget(t, p)
	lease := g.reserve(benchNow, 80)
	later := benchNow + Time(2*time.Second)
	if used := g.used(later); used != 80 {
		t.Errorf("in a later window %d hits are used, want the 80 reserved ones", used)
	}
	if g.settleLease(later, lease, 30); g.used(later) != 30 {
		t.Errorf("the cost does not count in the window of the settlement: %d hits are used", g.used(later))
	}
	if used := g.used(later + Time(2*time.Second)); used != 0 {
		t.Errorf("in the window after that %d hits are used", used)
	}
}

// TestDeniedReservationsOfAStore denies reservations after the state that a store reported: beyond the
// limit, or beyond the greatest number of them. They hold nothing.
func TestDeniedReservationsOfAStore(t *testing.T) {
	p := &Policy{Algorithm: FixedWindow, Limit: 100, Window: time.Minute, Reserve: NewReserve(3, time.Minute, true)}
	for _, tt := range []struct {
		state      State
		isAdmitted bool
	}{
		{State{HeldHits: 95, Reservations: 2}, true},
		{State{HeldHits: 96, Reservations: 2}, false},
		{State{HeldHits: 95, Reservations: 3}, false},
	} {
		b := &Batch{Charges: []Charge{{ID: counterID(0), Policy: p, Hits: 5, Reserve: true}}}
		b.Stored().Decide(min1, []State{tt.state})
		want := tt.state
		if tt.isAdmitted {
			want.HeldHits += 5
			want.Reservations++
		}
		got := b.reported(0)
		if b.Decisions[0].Over == tt.isAdmitted || got.HeldHits != want.HeldHits || got.Reservations != want.Reservations {
			t.Errorf("%+v: %+v and %+v, want %+v", tt.state, b.Decisions[0], got, want)
		}
	}
}

// TestPinnedCompanions checks that reservations and penalties of pinned counters survive a flood of
// others.
func TestPinnedCompanions(t *testing.T) {
	for last, policy := range map[uint64]*Policy{ // by the hits that only the companion denies
		5: {Reserve: NewReserve(4, time.Hour, false)},
		1: {Penalty: NewPenalty(time.Hour)},
	} {
		policy.Algorithm, policy.Limit, policy.Window = FixedWindow, 10, time.Hour
		g := newBudget(t, policy)
		g.table = newTable(t, 1<<15)
		charge := func(id identity.ID, hits uint64) bool {
			b := &Batch{Charges: []Charge{{ID: id, Policy: policy, Hits: hits, Reserve: policy.Reserve != nil}}}
			g.table.Decide(0, b)
			return !b.Denied
		}
		policy.Pin()
		charge(g.id, 6)
		charge(g.id, 5) // starts the penalty
		others := *policy
		if others.Pinned = false; others.Reserve != nil {
			others.Reserve = NewReserve(4, time.Hour, false)
		}
		policy = &others
		for n := range 5_000 {
			charge(counterID(n), 8)
			charge(counterID(n), 8)
		}
		policy = g.p
		if charge(g.id, last) {
			t.Errorf("the companion of a pinned counter was evicted; its policy is %+v", policy)
		}
	}
}
