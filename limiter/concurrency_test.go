package limiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// atOnce returns a policy of n permits, each for a minute.
func atOnce(n uint32) *Policy {
	p := &Policy{Algorithm: Concurrency, Limit: n, Window: time.Minute}
	p.Prepare()
	return p
}

// acquirePermit charges one hit to counter id, and returns the lease or 0.
func acquirePermit(t *Table, now Time, id identity.ID, p *Policy) uint64 {
	b := &Batch{Charges: []Charge{{ID: id, Policy: p, Hits: 1}}}
	t.Decide(now, b)
	return b.Lease(0)
}

// returnLease returns a lease. Its result is the number of released permits.
func returnLease(t *Table, now Time, id identity.ID, p *Policy, lease uint64) uint64 {
	b := &Batch{Charges: []Charge{{ID: id, Policy: p, Hits: lease, Refund: true}}}
	t.Decide(now, b)
	return b.Decisions[0].Charged
}

// TestConcurrencyAgainstAMap compares a concurrency limit with a map of leases.
func TestConcurrencyAgainstAMap(t *testing.T) {
	for _, n := range []uint32{0, 1, 2, 3, 16, 100, MaxLog} {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		tab := newTable(t, 1<<20)
		p, id := atOnce(n), identity.ID{Hi: r.Uint64(), Lo: r.Uint64()}
		now, held := benchNow, map[uint64]Time{}
		var ended []uint64
		for step := range 4000 + 4*int(n) {
			now += Time(r.Int64N(int64(time.Second)))
			for lease, end := range held {
				if end <= now {
					delete(held, lease)
				}
			}
			switch r.IntN(5) {
			case 0, 1, 2:
				lease := acquirePermit(tab, now, id, p)
				if want := len(held) < int(n); (lease > 0) != want {
					t.Fatalf("seed %d, step %d: lease %d with %d of %d held", seed, step, lease, len(held), n)
				}
				if lease == 0 {
					break
				}
				if _, twice := held[lease]; twice || lease < FirstLease || lease > LastLease {
					t.Fatalf("seed %d, step %d: lease %d, held twice: %v", seed, step, lease, twice)
				}
				held[lease] = (now + Time(p.Window) + Time(time.Millisecond) - 1) / Time(time.Millisecond) * Time(time.Millisecond)
			case 3:
				for lease := range held {
					if got := returnLease(tab, now, id, p, lease); got != 1 {
						t.Fatalf("seed %d, step %d: returning %d released %d", seed, step, lease, got)
					}
					delete(held, lease)
					ended = append(ended, lease)
					break
				}
			case 4:
				lease := r.Uint64N(1 << 30) // very rarely a valid lease
				if len(ended) > 0 && r.IntN(2) == 0 {
					lease = ended[r.IntN(len(ended))]
				}
				if _, is := held[lease]; !is && returnLease(tab, now, id, p, lease) != 0 {
					t.Fatalf("seed %d, step %d: the invalid lease %d released a permit", seed, step, lease)
				}
			}
		}
	}
}

// TestConcurrencyKeepsPermitsAcrossLimits checks that a change of the limit neither releases
// permits nor invalidates leases.
func TestConcurrencyKeepsPermitsAcrossLimits(t *testing.T) {
	tab := newTable(t, 1<<20)
	id, few, many := identity.ID{Hi: 7 << 20, Lo: 9}, atOnce(2), atOnce(50)
	var leases []uint64
	for range 50 {
		leases = append(leases, acquirePermit(tab, benchNow, id, many))
	}
	if acquirePermit(tab, benchNow, id, few) != 0 {
		t.Error("with 50 permits held, a limit of 2 admits another")
	}
	for i, lease := range leases {
		if returnLease(tab, benchNow, id, few, lease) != 1 {
			t.Errorf("lease %d, granted under another limit, is not valid", i)
		}
	}
	for range 2 {
		if acquirePermit(tab, benchNow, id, few) == 0 {
			t.Error("released permits are not free")
		}
	}
	if acquirePermit(tab, benchNow, id, many) == 0 || acquirePermit(tab, benchNow, id, few) != 0 {
		t.Error("no permit is free after the limit was raised, or a permit is free after it was lowered")
	}
}

// TestDeniedRequestsHoldNothing denies the request by another group.
func TestDeniedRequestsHoldNothing(t *testing.T) {
	tab := newTable(t, 1<<20)
	p, full := atOnce(1), &Policy{Algorithm: FixedWindow, Window: time.Minute}
	other := &Policy{Algorithm: FixedWindow, Window: time.Minute, Limit: 100}
	for _, order := range [][]int32{{0, 1, 1}, {1, 0, 0}} {
		permit := Charge{ID: identity.ID{Hi: 1 << 30, Lo: 1}, Policy: p, Hits: 1, Group: order[1]}
		otherCharge := Charge{ID: identity.ID{Hi: 1 << 31, Lo: 3}, Policy: other, Hits: 1, Group: order[2]}
		denies := Charge{ID: identity.ID{Hi: 2 << 30, Lo: 2}, Policy: full, Hits: 1, Group: order[0]}
		b := &Batch{Charges: []Charge{denies, permit, otherCharge}}
		if order[0] == 1 {
			b.Charges = []Charge{permit, otherCharge, denies}
		}
		tab.Decide(benchNow, b)
		if !b.Denied || b.HasLease() {
			t.Errorf("order %v: denied is %v, HasLease = %v", order, b.Denied, b.HasLease())
		}
		for i := range b.Charges {
			if b.Charges[i].Policy == other && b.Decisions[i].Charged > 0 {
				t.Errorf("order %v: a charge of the same group as the permit counts", order)
			}
		}
	}
	if lease := acquirePermit(tab, benchNow, identity.ID{Hi: 1 << 30, Lo: 1}, p); lease == 0 {
		t.Error("a denied request holds a permit")
	}
}

// TestALaterGroupDeniesPermits denies groups that acquire permits by a later group, or by quotas.
func TestALaterGroupDeniesPermits(t *testing.T) {
	for name, b := range map[string]*Batch{
		"full":  {Charges: []Charge{oneHit(counterID(1), atOnce(1)), {ID: counterID(2), Policy: atOnce(0), Hits: 1, Group: 1}}},
		"quota": {Charges: []Charge{oneHit(counterID(1), atOnce(1)), {ID: counterID(2), Policy: atOnce(0), Hits: 1, Group: 1, Mode: Quota}}},
		"all or nothing": {Charges: []Charge{
			oneHit(counterID(1), atOnce(1)), {ID: counterID(2), Policy: perMinute(9), Hits: 1}, {ID: counterID(3), Policy: perMinute(0), Hits: 1},
		}},
	} {
		tab := newTable(t, 1<<20)
		if tab.Decide(benchNow, b); !b.Denied || b.HasLease() {
			t.Errorf("%s: denied is %v, HasLease = %v", name, b.Denied, b.HasLease())
		}
		if acquirePermit(tab, benchNow, counterID(1), atOnce(1)) == 0 {
			t.Errorf("%s: the permit is still held", name)
		}
	}
	peek := &Batch{Charges: []Charge{{ID: counterID(1), Policy: atOnce(1)}, {ID: counterID(2), Policy: perMinute(9), Hits: 3}, {ID: counterID(3), Policy: atOnce(0), Hits: 1, Group: 1}}}
	if newTable(t, 1<<20).Decide(benchNow, peek); !peek.Denied || peek.Decisions[1].Charged != 3 {
		t.Errorf("hits next to a peek at permits: %+v, want them charged although another group is denied", peek.Decisions[1])
	}
	for mode, admits := range map[Mode]bool{Shadow: true, Watch: true, Enforce: false} {
		tab := newTable(t, 1<<20)
		b := &Batch{Charges: []Charge{oneHit(counterID(1), atOnce(1)), {ID: counterID(2), Policy: atOnce(0), Hits: 1, Group: 1, Mode: mode}}}
		if tab.Decide(benchNow, b); b.Denied == admits || (b.Lease(0) > 0) != admits || b.Lease(1) > 0 {
			t.Errorf("mode %d: denied is %v, leases %d and %d", mode, b.Denied, b.Lease(0), b.Lease(1))
		}
	}
}

// TestReturnedLeasesAreNotHits acquires a permit and returns another in one request, together with
// an offset refund.
func TestReturnedLeasesAreNotHits(t *testing.T) {
	for _, group := range []int32{0, 1} {
		tab, p, id := newTable(t, 1<<20), atOnce(2), counterID(1)
		old := acquirePermit(tab, benchNow, id, p)
		b := &Batch{Charges: []Charge{
			{ID: id, Policy: p, Hits: 1},
			{ID: id, Policy: p, Hits: old, Refund: true, Group: group},
			{ID: id, Policy: p, Hits: 1, Group: 2 * group},
			{ID: counterID(2), Policy: perMinute(9), Hits: 3, Group: 3 * group},
			{ID: counterID(2), Policy: perMinute(9), Hits: 2, Refund: true, Group: 4 * group},
		}}
		if tab.Decide(benchNow, b); b.Denied || b.Lease(0) == 0 || b.Lease(2) == 0 || b.Decisions[1].Charged != 1 {
			t.Errorf("group %d: denied is %v, decisions %+v", group, b.Denied, b.Decisions)
		}
		if tab.Decide(benchNow, b); b.Denied != true || b.HasLease() {
			t.Errorf("group %d: two held permits were acquired again", group)
		}
	}
}

// TestSeveralPermitsOfOneRequest acquires several permits of one counter in one group, and returns
// them one by one.
func TestSeveralPermitsOfOneRequest(t *testing.T) {
	tab := newTable(t, 1<<20)
	p, id := atOnce(4), identity.ID{Hi: 1 << 30, Lo: 1}
	first := acquirePermit(tab, benchNow, id, p)
	b := &Batch{Charges: []Charge{{ID: id, Policy: p, Hits: 1}, {ID: id, Policy: p, Hits: 1}, {ID: id, Policy: p, Hits: 1}}}
	tab.Decide(benchNow, b)
	for i := range b.Charges {
		if b.Lease(i) == 0 || returnLease(tab, benchNow, id, p, b.Lease(i)) != 1 {
			t.Errorf("charge %d has the lease %d, which is not held", i, b.Lease(i))
		}
	}
	tab.Decide(benchNow, b)
	c := &Batch{Charges: b.Charges}
	tab.Decide(benchNow, c)
	if !c.Denied || c.HasLease() {
		t.Errorf("a request for three of four permits: denied is %v, HasLease = %v", c.Denied, c.HasLease())
	}
	tab.Cancel(benchNow, b)
	if tab.Decide(benchNow, c); c.Denied {
		t.Error("cancelled permits are still held")
	}
	if returnLease(tab, benchNow, id, p, first) != 1 {
		t.Error("the first lease is not valid")
	}
}

// TestResetReleasesPermits checks that a reset invalidates all leases.
func TestResetReleasesPermits(t *testing.T) {
	tab := newTable(t, 1<<20)
	p, id := atOnce(1), identity.ID{Hi: 1 << 30, Lo: 1}
	old := acquirePermit(tab, benchNow, id, p)
	if used := tab.Reset(benchNow, &Batch{Charges: []Charge{{ID: id, Policy: p}}}, 0); used != 1 {
		t.Errorf("a reset of one permit returned %d", used)
	}
	if acquirePermit(tab, benchNow, id, p) == 0 {
		t.Error("no permit is free after a reset")
	}
	if returnLease(tab, benchNow, id, p, old) != 0 {
		t.Error("a lease from before the reset released a later permit")
	}
}

// TestHigherLimitKeepsLeases returns leases after the counter has moved to a larger size class.
func TestHigherLimitKeepsLeases(t *testing.T) {
	tab, id := newTable(t, 1<<20), counterID(1)
	held := map[uint64]*Policy{}
	for _, limit := range []uint32{1, 2, 3, 6, 60, 61, 1000, MaxLog} {
		p := atOnce(limit)
		for lease := uint64(1); lease > 0; {
			if lease = acquirePermit(tab, benchNow, id, p); lease > 0 {
				held[lease] = p
			}
		}
		if len(held) != int(limit) {
			t.Fatalf("%d leases of %d permits", len(held), limit)
		}
	}
	for lease := range held {
		if returnLease(tab, benchNow, id, atOnce(MaxLog), lease) != 1 {
			t.Fatalf("lease %d, granted with a limit of %d, is not valid", lease, held[lease].Limit)
		}
	}
}

// TestLateCallerAcquiresAFreePermit checks that a caller whose time is before the expiry of a
// permit that other callers know to be expired does not acquire a held permit.
func TestLateCallerAcquiresAFreePermit(t *testing.T) {
	tab, id, p := newTable(t, 1<<20), counterID(1), atOnce(5)
	acquirePermit(tab, benchNow, id, p) // never released
	var leases []uint64
	for range 4 {
		leases = append(leases, acquirePermit(tab, benchNow+50*sec, id, p))
	}
	if returnLease(tab, benchNow+61*sec, id, p, leases[0]) != 1 {
		t.Fatal("a lease is not valid")
	}
	for range 2 {
		leases = append(leases, acquirePermit(tab, benchNow+59*sec, id, p))
	}
	for i, lease := range leases[1:] {
		if returnLease(tab, benchNow+61*sec, id, p, lease) != 1 {
			t.Errorf("lease %d of %d is not valid", i, len(leases)-1)
		}
	}
}

// TestPermitsExpireOneByOne has permits that expire within a second of each other, and years apart.
func TestPermitsExpireOneByOne(t *testing.T) {
	for _, apart := range []Time{Time(time.Millisecond), 600 * Time(time.Millisecond), 7 * sec, 300 * 24 * 3600 * sec} {
		p, tab, id := &Policy{Algorithm: Concurrency, Limit: 9, Window: MaxWindow}, newTable(t, 1<<20), counterID(1)
		for n := range Time(9) {
			acquirePermit(tab, benchNow+n*apart, id, p)
		}
		for n := range Time(9) {
			end := -floorDiv(-int64(benchNow+n*apart+Time(p.Window)), int64(time.Millisecond)) * int64(time.Millisecond)
			for at, want := range map[Time]uint64{Time(end - 1): 9 - uint64(n), Time(end): 8 - uint64(n)} {
				if got := decide(tab, at, Charge{ID: id, Policy: p}).Decisions[0].Before; got != want {
					t.Errorf("%v apart, permit %d: %d permits are held at %d, expiry %d, want %d", apart, n, got, at, end, want)
				}
			}
		}
	}
}

// TestPermitsAreCountedOnlyAfterAnExpiry checks that cells are not read one by one in the second
// before a permit expires.
func TestPermitsAreCountedOnlyAfterAnExpiry(t *testing.T) {
	tab, id, p := newTable(t, 1<<20), counterID(1), atOnce(9)
	for n := range Time(9) {
		acquirePermit(tab, benchNow+n*sec/10, id, p)
	}
	b := &Batch{Charges: []Charge{oneHit(id, p)}, table: tab}
	for n := range Time(9) {
		b.read(benchNow, 0, &b.view)
		ps := b.view.permits(p)
		if want := -floorDiv(-int64(benchNow+n*sec/10)-int64(p.Window), int64(time.Millisecond)) * int64(time.Millisecond); ps.first != want {
			t.Errorf("with %d of 9 permits held the first expiry is %d, want %d", 9-n, ps.first, want)
		}
		if n < 8 {
			acquirePermit(tab, Time(ps.first), id, p)
		}
	}
}
