package admin_test

import (
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestKeyOfARow denies a client with a row, which then changes and is deleted. The key has the
// number of the row, not that of the rule, and the number follows the row.
func TestKeyOfARow(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 0, unit: minute, table: t}}]}")
	e, err := r.tables.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	put := func(row tables.Row) {
		t.Helper()
		if err := e.Put([]string{"user"}, []string{"al"}, row); err != nil {
			t.Fatal(err)
		}
	}
	key := func() live.Key {
		r.requestHits(100)
		r.now += limiter.Time(5 * time.Second)
		r.Tick(r.time()) // the interval ends
		r.requestHits(100)
		return r.State(r.time(), admin.AllRules).Domains[0].DeniedKeys[0]
	}
	put(tables.Row{RequestsPerUnit: 1})
	if k := key(); k.Limit != "0/minute, table: t" || k.OwnLimit != "1/minute" || k.Table != "t" || k.Unit != "requests" {
		t.Errorf("the key is %+v, want 1/minute from table t", k)
	}
	if put(tables.Row{RequestsPerUnit: 2}); key().OwnLimit != "2/minute" {
		t.Errorf("after the row has changed the key is %+v, want 2/minute", key())
	}
	e.Delete([]string{"al"})
	if k := key(); k.OwnLimit != "" || k.Table != "" {
		t.Errorf("without the row the key is %+v, want no own limit", k)
	}
}

// TestPermitsInFlight denies a client that holds all of its permits.
func TestPermitsInFlight(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 3, unit: minute, algorithm: concurrency, name: calls}}]}")
	for range 5 {
		r.requestHits()
	}
	k := r.State(r.time(), admin.AllRules).Domains[0].DeniedKeys[0]
	if k.Unit != "permits" || k.Permits != 3 || k.InFlight == nil || *k.InFlight != 3 {
		t.Errorf("the key is %+v, want 3 of 3 permits in flight", k)
	}
	r.now += limiter.Time(61 * time.Second) // the permits expire
	if k := r.State(r.time(), admin.AllRules).Domains[0].DeniedKeys[0]; k.InFlight == nil || *k.InFlight != 0 {
		t.Errorf("after a minute the key is %+v, want 0 of 3 permits in flight", k)
	}
	replica := func(n uint64) *live.State {
		return &live.State{Domains: []live.DomainState{{DeniedKeys: []live.Key{{Hash: "h", Permits: 3, InFlight: &n}}}}}
	}
	sum := live.Sum([]string{"a", "b"}, []*live.State{replica(1), replica(2)})
	if k := sum.Domains[0].DeniedKeys[0]; k.Permits != 6 || k.InFlight == nil || *k.InFlight != 3 {
		t.Errorf("the key of two replicas is %+v, want 3 of 6 permits in flight", k)
	}
}

// TestUnitsOfLimits checks that limits of requests precede those of tokens, whose rates are higher.
func TestUnitsOfLimits(t *testing.T) {
	r := newReloaded(t, `{domain: d, descriptors: [{key: user, rate_limits: [
		{requests_per_unit: 5, unit: day, name: spent, reserve: {amount: 1}},
		{requests_per_unit: 9, unit: year, name: Token-budget, count_refused: true},
		{requests_per_unit: 5, unit: minute, algorithm: concurrency, name: calls},
		{requests_per_unit: 7, unit: minute}]}]}`)
	r.requestHits(2)
	var got []string
	for _, l := range r.State(r.time(), admin.AllRules).Domains[0].Rules {
		got = append(got, l.Unit)
	}
	if strings.Join(got, " ") != "requests permits tokens hits" {
		t.Errorf("the units of the limits are %v", got)
	}
}

// TestStateOfRequestLimit checks the number of a limit in the request, which has no rule.
func TestStateOfRequestLimit(t *testing.T) {
	r := newReloaded(t, "domain: d")
	servertest.Hit(t, r.service, "user", "al", 1, &rlcommon.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit_HOUR})
	if k := r.State(r.time(), admin.AllRules).Domains[0].DeniedKeys[0]; k.Rule != "" || k.OwnLimit != "0/hour" || k.Table != "" {
		t.Errorf("the key is %+v, want 0/hour without a rule", k)
	}
}
