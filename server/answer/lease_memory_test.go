package answer

import (
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
)

// tableService returns a service whose rules may refer to the table plans, which has the given
// rows.
func tableService(tb testing.TB, settings Settings, rules string, rows map[string]tables.Row) *Service {
	tb.Helper()
	registry := &tables.Registry{}
	entry, err := registry.Add("plans", "")
	if err != nil {
		tb.Fatal(err)
	}
	for customer, row := range rows {
		if err := entry.Put([]string{"customer"}, []string{customer}, row); err != nil {
			tb.Fatal(err)
		}
	}
	configs, ds := rulefile.Parse("rules.yaml", []byte(rules))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{Tables: registry})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	settings.Tables = registry
	s := service(tb, settings, "")
	if err := s.SetRules(noon, set); err != nil {
		tb.Fatal(err)
	}
	return s
}

// oneDescriptor returns a request for one hit with a descriptor of the given keys and values, and
// with a limit override per hour unless override is 0.
func oneDescriptor(override uint32, pairs ...string) *rls.RateLimitRequest {
	d := &rlcommon.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, entry(pairs[i], pairs[i+1]))
	}
	if override > 0 {
		d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: override, Unit: typev3.RateLimitUnit_HOUR}
	}
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{d}}
}

// reserving has two rules that reserve, with different fields, and a third without leases.
const reserving = `{domain: d, descriptors: [
  {key: customer, rate_limit: {name: frees, requests_per_unit: 600, unit: hour, reserve: {amount: 60, unsettled: release, ttl: 10m}, table: plans}},
  {key: other, descriptors: [{key: customer, rate_limit: {name: keeps, requests_per_unit: 900, unit: hour, reserve: {amount: 90, unsettled: keep, ttl: 1m}, table: plans}}]},
  {key: plain, rate_limit: {requests_per_unit: 5, unit: hour}}]}`

// TestLeaseOutlivesItsExchange resets a call whose exchange has answered other requests since. The
// lease must not refer to the exchange's memory.
func TestLeaseOutlivesItsExchange(t *testing.T) {
	rows := map[string]tables.Row{"acme": {RequestsPerUnit: 120}, "small": {RequestsPerUnit: 90}}
	for name, first := range map[string]*rls.RateLimitRequest{
		"rule": oneDescriptor(0, "customer", "nobody"), "row": oneDescriptor(0, "customer", "acme"), "override": oneDescriptor(100, "customer", "acme"),
	} {
		for then, second := range map[string]*rls.RateLimitRequest{
			"a rule": oneDescriptor(0, "other", "x", "customer", "nobody"), "a row": oneDescriptor(0, "other", "x", "customer", "small"),
			"an override": oneDescriptor(200, "other", "x", "customer", "small"), "no lease": oneDescriptor(300, "plain", "x"),
		} {
			t.Run(name+", then "+then, func(t *testing.T) {
				s := tableService(t, Settings{Clock: clock.New()}, reserving, rows)
				b := s.Connect("a")
				x := &Exchange{Connection: b, Stream: 2}
				ask := func(r *rls.RateLimitRequest) {
					t.Helper()
					if _, _, err := s.Answer(s.now(), time.Minute, x, marshal(t, r)); err != nil {
						t.Fatal(err)
					}
				}
				ask(first)
				x.Stream = 4
				ask(second)
				b.ResetCall(2)
				x = &Exchange{}
				if ask(first); x.plan.Batch.Decisions[0].Before != 0 {
					t.Errorf("%d hits are still held", x.plan.Batch.Decisions[0].Before)
				}
			})
		}
	}
}

// TestLeasesAreReturnedWhileTheirExchangeIsUsed is for the race detector.
func TestLeasesAreReturnedWhileTheirExchangeIsUsed(t *testing.T) {
	s := tableService(t, Settings{Clock: clock.New()}, reserving, map[string]tables.Row{"acme": {RequestsPerUnit: 120}})
	b := s.Connect("a")
	x := &Exchange{Connection: b}
	override, row := marshal(t, oneDescriptor(100, "customer", "other")), marshal(t, oneDescriptor(0, "customer", "acme"))
	var resets sync.WaitGroup
	for i := range uint32(200) {
		x.Stream = 2 * i
		for _, request := range [][]byte{override, row} {
			if _, _, err := s.Answer(s.now(), time.Minute, x, request); err != nil {
				t.Fatal(err)
			}
		}
		resets.Go(func() { b.ResetCall(2 * i) })
	}
	resets.Wait()
	for _, request := range [][]byte{override, row} {
		if _, _, err := s.Answer(s.now(), time.Minute, x, request); err != nil || x.plan.Batch.Decisions[0].Before != 0 {
			t.Errorf("%d hits are still held, error %v", x.plan.Batch.Decisions[0].Before, err)
		}
	}
}
