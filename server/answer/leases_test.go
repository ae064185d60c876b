package answer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

const tenPermits = "{domain: d, descriptors: [{key: k, rate_limit: {name: streams, algorithm: concurrency, requests_per_unit: 10, unit: hour}}]}"

// clients are the Envoys of a service, in a synctest bubble.
type clients struct {
	t       *testing.T
	service *Service
	calls   uint32
}

// call makes a call on a connection and returns the lease that it acquired, or 0. With a lease, it
// is the end call.
func (c *clients) call(b *leases.Connection, lease uint64) uint64 {
	c.t.Helper()
	request := simpleRequest()
	if lease > 0 {
		request.Descriptors[0].HitsAddend, request.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(lease), true
	}
	c.calls += 2
	x := &Exchange{Connection: b, Stream: c.calls}
	if _, _, err := c.service.Answer(c.service.now(), time.Minute, x, marshal(c.t, request)); err != nil {
		c.t.Fatal(err)
	}
	if x.OverLimit() {
		return 0
	}
	return x.plan.Batch.Lease(0)
}

// wantHeld checks the number of leases in the table and in the metric.
func (c *clients) wantHeld(want uint64) {
	c.t.Helper()
	now := c.service.now()
	x := &Exchange{}
	request := &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: simpleRequest().GetDescriptors()[0].GetEntries(), HitsAddend: wrapperspb.UInt64(0),
	}}}
	if _, _, err := c.service.Answer(now, 0, x, marshal(c.t, request)); err != nil {
		c.t.Fatal(err)
	}
	if held := x.plan.Batch.Decisions[0].Before; held != want {
		c.t.Errorf("the counter holds %d, want %d", held, want)
	}
	if out := gathered(c.t, c.service, "sluice_leases_active"); out != float64(want) {
		c.t.Errorf("%v are in flight by the metric, want %d", out, want)
	}
}

// gathered returns the sum of a metric.
func gathered(t *testing.T, s *Service, name string) (sum float64) {
	t.Helper()
	families, err := s.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestLeasesAreCounted checks the metrics of leases that are returned, returned twice, and expired.
func TestLeasesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, Settings{Clock: clock.New(), LeaseGrace: time.Second}, tenPermits)
		c := &clients{t: t, service: s}
		b := s.Connect("a")
		first := c.call(b, 0)
		c.call(b, first)
		c.call(b, first)
		c.call(b, 999_999_999)
		c.call(b, 0)
		c.call(b, 0)
		b.ResetCall(c.calls)
		c.wantHeld(1)
		time.Sleep(time.Hour)
		c.wantHeld(0)
		for name, want := range map[string]float64{
			"sluice_leases_released_total": 2, "sluice_leases_ignored_total": 2, "sluice_leases_expired_total": 1,
		} {
			if got := gathered(t, s, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// TestResetReservationCostsNothing resets a call whose request reserved hits. Its request has not
// begun, so nothing is charged.
func TestResetReservationCostsNothing(t *testing.T) {
	s := service(t, Settings{Clock: clock.New()}, "{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 100, unit: hour, reserve: {amount: 60}}}]}")
	c := &clients{t: t, service: s}
	b := s.Connect("a")
	for range 3 {
		if c.call(b, 0) == 0 {
			t.Fatal("60 of 100 cannot be reserved")
		}
		b.ResetCall(c.calls)
	}
	if got := gathered(t, s, "sluice_leases_released_total"); got != 3 {
		t.Errorf("%v leases were released, want 3", got)
	}
}

// TestReservedHitsAreCounted returns one reservation with a cost and one without, and leaves one
// open.
func TestReservedHitsAreCounted(t *testing.T) {
	for unsettled, costs := range map[string]float64{"keep": 7 + 60, "release": 7} {
		s := service(t, Settings{Clock: clock.New()},
			"{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 200, unit: hour, reserve: {amount: 60, unsettled: "+unsettled+"}}}]}")
		c := &clients{t: t, service: s}
		leases := []uint64{c.call(nil, 0), c.call(nil, 0), c.call(nil, 0)}
		end := simpleRequest()
		lease := end.GetDescriptors()[0]
		cost := proto.CloneOf(lease)
		lease.HitsAddend, cost.HitsAddend = wrapperspb.UInt64(leases[0]), wrapperspb.UInt64(7)
		end.Descriptors = append(end.GetDescriptors(), cost)
		for range 2 { // the second time the lease is stale, so the cost is charged without a reservation
			if _, _, err := s.Answer(s.now(), time.Minute, &Exchange{}, marshal(t, end)); err != nil {
				t.Fatal(err)
			}
		}
		c.call(nil, leases[1])
		if got, want := gathered(t, s, "sluice_reservation_hits_total"), 3*60+2*60+costs; got != want {
			t.Errorf("%s: %v hits are counted, want 180 reserved, 120 settled and %v of cost", unsettled, got, costs)
		}
	}
}

// TestLeasesLeaveNoGarbage acquires and returns permits and reservations.
func TestLeasesLeaveNoGarbage(t *testing.T) {
	for _, rules := range []string{
		strings.Replace(tenPermits, "10", "1000", 1),
		"{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 2000, unit: hour, reserve: {amount: 1, unsettled: release}}}]}",
	} {
		s := service(t, Settings{Clock: clock.New()}, rules)
		c := &clients{t: t, service: s}
		b := s.Connect("a")
		for range 2 { // the first iteration grows all memory
			leases := make([]uint64, 500)
			for i := range leases {
				leases[i] = c.call(b, 0)
			}
			for _, lease := range leases {
				c.call(b, lease)
			}
		}
		x, request := &Exchange{Connection: b}, marshal(t, simpleRequest())
		if allocs := must.AllocsPerRun(400, func() {
			x.Stream += 2
			if _, _, err := s.Answer(s.now(), time.Minute, x, request); err != nil {
				t.Fatal(err)
			}
		}); allocs > 0 {
			t.Errorf("a call that acquires a lease allocates %v times under %s", allocs, rules)
		}
		if x.OverLimit() {
			t.Errorf("it was denied under %s", rules)
		}
	}
}
