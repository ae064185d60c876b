package descriptors

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// testService decides requests against one limiter table, like a service.
type testService struct {
	t     *testing.T
	table *limiter.Table
	set   *Set
	plan  Plan
}

const opening = limiter.Time(1_800_000_000 * int64(time.Second))

func newTestService(t *testing.T, text string) *testService {
	t.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	return &testService{t: t, table: table, set: load(t, Options{HashKey: table.Key()}, text)}
}

// reload activates other rules.
func (d *testService) reload(text string) {
	d.t.Helper()
	set := load(d.t, Options{HashKey: d.table.Key()}, text)
	set.Inherit(d.set)
	d.set = set
}

// decide decides a request with the given descriptors.
func (d *testService) decide(ds ...Descriptor) *Plan {
	d.t.Helper()
	d.set.Plan(&d.plan, &Request{Domain: []byte("d"), Descriptors: ds}, Global{})
	d.table.Decide(opening, &d.plan.Batch)
	d.plan.RecordCosts()
	return &d.plan
}

func startCall() Descriptor {
	return Descriptor{Entries: []Entry{{[]byte("user"), []byte("al")}}}
}

func hitsOf(hits uint64, negative bool) Descriptor {
	d := startCall()
	d.HasHits, d.Hits, d.Refund = true, hits, negative
	return d
}

// lease acquires a lease on the first limit.
func (d *testService) lease() uint64 {
	d.t.Helper()
	p := d.decide(startCall())
	if p.Batch.Denied || p.Batch.Lease(0) == 0 {
		d.t.Fatalf("no lease: denied is %v", p.Batch.Denied)
	}
	return p.Batch.Lease(0)
}

func (d *testService) used() uint64 { return d.decide(hitsOf(0, false)).Batch.Decisions[0].Before }

const onePermit = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency}}]}"

// TestLeaseReturnedWithEitherSign returns leases as positive and as negative hits.
func TestLeaseReturnedWithEitherSign(t *testing.T) {
	for _, negative := range []bool{false, true} {
		d := newTestService(t, onePermit)
		for range 3 {
			lease := d.lease()
			if !d.decide(startCall()).Batch.Denied {
				t.Fatal("a second request is admitted")
			}
			if p := d.decide(hitsOf(lease, negative)); p.Batch.Decisions[0].Charged != 1 || p.Matches[0].Lease != lease {
				t.Fatalf("negative %v: the lease %d released nothing", negative, lease)
			}
			if p := d.decide(hitsOf(lease, negative)); p.Batch.Decisions[0].Charged != 0 {
				t.Fatalf("negative %v: the lease %d was released twice", negative, lease)
			}
		}
	}
}

// TestSettlementsHoldNoPermit checks that the cost of a request that has ended does not count as
// another request.
func TestSettlementsHoldNoPermit(t *testing.T) {
	d := newTestService(t, `{domain: d, descriptors: [{key: user, rate_limits: [
		{name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency}, {unit: hour, requests_per_unit: 100}]}]}`)
	lease := d.lease()
	for range 2 { // the second time the lease is stale
		d.decide(hitsOf(lease, true), hitsOf(30, false))
	}
	if p := d.decide(startCall()); p.Batch.Denied || p.Batch.Decisions[1].Before != 61 {
		t.Errorf("after a request of 1 hit and two costs of 30 hits: denied is %v, and %d hits are used", p.Batch.Denied, p.Batch.Decisions[1].Before)
	}
}

// TestLargeHitsWithoutLeases charges 600 MB to a limit on bytes, which grants no leases.
func TestLargeHitsWithoutLeases(t *testing.T) {
	const bytes = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 4000000000}}]}"
	d := newTestService(t, bytes)
	d.decide(hitsOf(600<<20, false))
	if used := d.used(); used != 600<<20 {
		t.Errorf("%d bytes are used, want %d", used, 600<<20)
	}
	d.decide(hitsOf(600<<20, true))
	if used := d.used(); used != 0 {
		t.Errorf("%d bytes are used after a refund of all", used)
	}
}

// TestLeaseReturnedAfterReload reloads rules during a request, so that its lease is returned to a
// limit that no longer grants leases.
func TestLeaseReturnedAfterReload(t *testing.T) {
	const counts = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}"
	for _, negative := range []bool{false, true} {
		d := newTestService(t, onePermit)
		lease := d.lease()
		for range 2 {
			d.reload(counts)
			d.decide(startCall())
		}
		d.decide(hitsOf(lease, negative))
		if used := d.used(); used != 2 {
			t.Errorf("negative %v: after a lease of the previous rules %d hits are used, want 2", negative, used)
		}
		d.reload(onePermit)
		if !d.decide(startCall()).Batch.Denied {
			t.Error("the permit that was acquired before both reloads was released")
		}
	}
}

// TestReservedAmounts settles a cost, and charges costs without a lease: their request was denied,
// or started while the service was unavailable.
func TestReservedAmounts(t *testing.T) {
	d := newTestService(t, "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: day, requests_per_unit: 1000, reserve: {amount: 400}}}]}")
	first, second := d.lease(), d.lease()
	if p := d.decide(startCall()); !p.Batch.Denied || p.Batch.HasLease() {
		t.Error("400 of 1000 hits can be reserved three times")
	}
	d.decide(hitsOf(70, false), hitsOf(first, false))
	d.decide(hitsOf(second, false), hitsOf(0, false))
	want := uint64(70)
	for _, cost := range []uint64{0, 1, 2, 500} {
		if p := d.decide(hitsOf(cost, false)); p.Batch.Decisions[0].Before != want || p.Batch.Decisions[0].Charged != cost || p.Batch.HasLease() {
			t.Errorf("a cost of %d without a lease is charged as %d hits after %d hits, want %d", cost, p.Batch.Decisions[0].Charged, p.Batch.Decisions[0].Before, want)
		}
		want += cost
	}
	d.decide(hitsOf(1, true))
	d.decide(hitsOf(FirstLease, false))
	d.decide(hitsOf(1<<64-1, false))
	if used := d.used(); used != want {
		t.Errorf("after unknown leases and negative costs, %d hits are used, want %d", used, want)
	}
	d.lease()
	if p := d.decide(hitsOf(0, false)); p.Batch.Decisions[0].Before != want+400 || p.Batch.Decisions[0].Remaining != 1000-want-400 {
		t.Errorf("0 hits read %+v, want %d used and reserved hits", p.Batch.Decisions[0], want+400)
	}
}

// TestCostsWithoutLeasesHoldNothing sends the cost of a request that has no lease, on lists of
// limits.
func TestCostsWithoutLeasesHoldNothing(t *testing.T) {
	const (
		permit  = "{name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency}"
		tokens  = "{name: t, unit: hour, requests_per_unit: 100, count_refused: true}"
		reserve = "{name: r, unit: day, requests_per_unit: 100, reserve: {amount: 60}}"
	)
	for _, limits := range []string{
		permit + "," + tokens, tokens + "," + permit, reserve, permit + "," + reserve, tokens + "," + reserve + "," + permit,
		tokens + ", {name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency, shadow: true}",
		tokens + ", {name: r, unit: day, requests_per_unit: 100, shadow: true, reserve: {amount: 60}}",
	} {
		for _, shadow := range []string{"false", "true"} {
			for _, cost := range []uint64{0, 1, 2, 30} {
				d := newTestService(t, "{domain: d, descriptors: [{key: user, shadow_mode: "+shadow+", rate_limits: ["+limits+"]}]}")
				other := hitsOf(cost, false)
				other.Entries = []Entry{{[]byte("user"), []byte("bo")}}
				if p := d.decide(hitsOf(cost, false), other, hitsOf(0, false)); p.Batch.HasLease() {
					t.Errorf("%s: a cost of %d gets a lease", limits, cost)
				}
				for _, entries := range []Descriptor{startCall(), other} {
					entries.HasHits, entries.Hits = true, 0
					p := d.decide(entries)
					for i, l := range p.Limits {
						if got, want := p.Batch.Decisions[i].Before, cost; got != want && l.HasWindow() || got != 0 && !l.HasWindow() {
							t.Errorf("%s: after a cost of %d, %d of %s are used", limits, cost, got, l.Name)
						}
					}
				}
			}
		}
	}
}

// TestEstimateFollowsCosts settles requests at 100 hits each after a first estimate of 400, and
// reloads the rules. Failed requests, which cost nothing, change no estimate.
func TestEstimateFollowsCosts(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: day, requests_per_unit: 100000, reserve: {p90: true, first: 400}}}]}"
	d := newTestService(t, text)
	fail := func() {
		for range 100 {
			d.decide(hitsOf(d.lease(), false), hitsOf(0, false))
		}
	}
	fail()
	for n := range 64 {
		p := d.decide(startCall())
		if want := uint64(400); n < 57 && p.Batch.Decisions[0].Charged != want {
			t.Fatalf("request %d reserves %d, want %d", n, p.Batch.Decisions[0].Charged, want)
		}
		d.decide(hitsOf(p.Batch.Lease(0), false), hitsOf(100, false))
	}
	fail()
	d.reload(text)
	p := d.decide(startCall())
	if got := p.Batch.Decisions[0].Charged; got != 100 {
		t.Errorf("after 64 requests of 100 hits, a request reserves %d", got)
	}
	lease := p.Batch.Lease(0)
	for range 200 {
		p = d.decide(startCall())
		d.decide(hitsOf(p.Batch.Lease(0), false), hitsOf(1, false))
	}
	if got := d.decide(startCall()).Batch.Decisions[0].Charged; got != 50 {
		t.Errorf("after cheap requests, a request reserves %d, want an eighth of the first estimate", got)
	}
	d.decide(hitsOf(lease, false))
}

// TestOverrideReservations reserves on overrides up to their capacity. They settle like the limit
// of the rule.
func TestOverrideReservations(t *testing.T) {
	d := newTestService(t, "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: day, requests_per_unit: 1000, reserve: {amount: 400}}}]}")
	own := func(x Descriptor) Descriptor { return x.limit(10_000, int32(rules.Hour), 1) }
	var leases []uint64
	for range 25 {
		leases = append(leases, d.decide(own(startCall())).Batch.Lease(0))
	}
	if slices.Contains(leases, 0) || !d.decide(own(startCall())).Batch.Denied {
		t.Fatalf("the leases are %v, want exactly 25 reservations of 400 of 10,000 hits", leases)
	}
	for _, lease := range leases {
		d.decide(own(hitsOf(lease, false)), own(hitsOf(100, false)))
	}
	if used := d.decide(own(hitsOf(500, false))).Batch.Decisions[0].Before; used != 2500 {
		t.Errorf("25 requests of 100 have used %d", used)
	}
}

// TestUnsettledReservations checks that reservations last for their ttl, and with unsettled: keep
// for another window.
func TestUnsettledReservations(t *testing.T) {
	for unsettled, want := range map[string]map[time.Duration]uint64{
		"keep":    {59 * time.Second: 400, 2 * time.Minute: 400, time.Hour + 59*time.Second: 400, time.Hour + time.Minute + 2*time.Second: 0},
		"release": {59 * time.Second: 400, time.Minute + time.Second: 0},
	} {
		for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
			d := newTestService(t, "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: hour, requests_per_unit: 1000, algorithm: "+
				algorithm+", reserve: {amount: 400, ttl: 60s, unsettled: "+unsettled+"}}}]}")
			d.lease()
			for _, after := range slices.Sorted(maps.Keys(want)) {
				if got := d.heldOf(startCall(), after); got != want[after] {
					t.Errorf("%s, %s: %d hits are reserved after %v, want %d", algorithm, unsettled, got, after, want[after])
				}
			}
		}
	}
}

// TestCandidateLeavesPermits adds a candidate that counts costs to a list that grants permits: the
// active limit still denies.
func TestCandidateLeavesPermits(t *testing.T) {
	const permit = "{name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency}"
	for _, limits := range []string{permit, permit + ", {unit: minute, requests_per_unit: 100, shadow: true}"} {
		d := newTestService(t, "{domain: d, descriptors: [{key: user, rate_limits: ["+limits+"]}]}")
		d.decide(hitsOf(1, false))
		if !d.decide(hitsOf(1, false)).Batch.Denied {
			t.Errorf("%s: a second request is admitted", limits)
		}
	}
}
