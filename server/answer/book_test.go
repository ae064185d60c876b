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

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const tenPlaces = "{domain: d, descriptors: [{key: k, rate_limit: {name: streams, algorithm: concurrency, requests_per_unit: 10, unit: hour}}]}"

// clients are the Envoys of a service, in a synctest bubble.
type clients struct {
	t       *testing.T
	service *Service
	calls   uint32
}

// call makes a call on a connection, and returns the lease that it was given, or 0. With a lease it is an end call.
func (c *clients) call(b *Bearer, lease uint64) uint64 {
	c.t.Helper()
	request := simpleRequest()
	if lease > 0 {
		request.Descriptors[0].HitsAddend, request.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(lease), true
	}
	c.calls += 2
	x := &Exchange{Bearer: b, Stream: c.calls}
	if _, _, err := c.service.Answer(c.service.now(), time.Minute, x, marshal(c.t, request)); err != nil {
		c.t.Fatal(err)
	}
	if x.OverLimit() {
		return 0
	}
	return x.plan.Batch.Lease(0)
}

// wantOut checks how many leases are out: in the table, and by the metric.
func (c *clients) wantOut(want uint64) {
	c.t.Helper()
	now := c.service.now()
	x := &Exchange{Bearer: nil}
	request := &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: simpleRequest().GetDescriptors()[0].GetEntries(), HitsAddend: wrapperspb.UInt64(0),
	}}}
	if _, _, err := c.service.Answer(now, 0, x, marshal(c.t, request)); err != nil {
		c.t.Fatal(err)
	}
	if held := x.plan.Batch.Decisions[0].Before; held != want {
		c.t.Errorf("%d places are held, want %d", held, want)
	}
	if out := gathered(c.t, c.service, "sluice_in_flight"); out != float64(want) {
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

// busy makes calls for five seconds without a pause, which end at once.
func (c *clients) busy(b *Bearer) {
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		c.call(b, c.call(b, 0))
	}
}

// TestALostClientLosesItsLeases plays how connections end. Each script ends with one that has, and leaves leases of
// which so many are to be out after the grace.
func TestALostClientLosesItsLeases(t *testing.T) {
	const grace = time.Second
	for name, test := range map[string]struct {
		out   uint64 // in the end
		plays func(c *clients, s *Service)
	}{
		"in silence": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace - time.Millisecond)
			c.wantOut(1)
		}},
		"deaf": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedDeaf, 5)
		}},
		"two connections": {0, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
			time.Sleep(10 * grace)
			c.wantOut(3)
			b.Leave(EndedInSilence, 5)
		}},
		"one of two connections": {2, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
		}},
		"two after replies, after as many calls": {2, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedAfterReply, 7)
			b.Leave(EndedAfterReply, 7)
		}},
		"two after replies, the first after fewer calls": {0, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedAfterReply, 7)
			b.Leave(EndedAfterReply, 8)
		}},
		"two after replies, the last after fewer calls": {0, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedAfterReply, 8)
			time.Sleep(10 * grace)
			b.Leave(EndedAfterReply, 7)
		}},
		"two after replies, the last after more calls, and later": {2, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedAfterReply, 7)
			time.Sleep(10 * grace)
			b.Leave(EndedAfterReply, 8)
		}},
		"in silence, of a client that spends connections": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedAfterReply, 5)
			b = s.Bearer("a")
			c.call(b, c.call(b, 0))
			time.Sleep(10 * grace)
			b.Leave(EndedInSilence, 5)
		}},
		"another's connection": {1, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("b")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
		}},
		"two, of which the last was after a reply": {0, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
			b.Leave(EndedAfterReply, 5)
		}},
		"another connection within the grace": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace - time.Millisecond)
			s.Bearer("a")
		}},
		"another connection within the grace, which ended in order": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace / 2)
			s.Bearer("a").Leave(EndedInOrder, 5)
			b = s.Bearer("a")
			c.call(b, c.call(b, 0))
			b.Leave(EndedInOrder, 5)
		}},
		"another connection within the grace, which was spent": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace / 2)
			b = s.Bearer("a")
			c.call(b, c.call(b, 0))
			b.Leave(EndedAfterReply, 5)
		}},
		"one long ago, and the other after a reply": {2, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
			time.Sleep(10 * grace)
			b.Leave(EndedAfterReply, 5)
		}},
		"after one that has got its lease back": {0, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			lease := c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInOrder, 5)
			b.Leave(EndedInOrder, 5)
			c.call(nil, lease)
			b = s.Bearer("a")
			c.call(b, c.call(b, 0))
			b.Leave(EndedInSilence, 5)
		}},
		"the other connection, too": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace / 2)
			b = s.Bearer("a")
			c.call(b, 0)
			time.Sleep(10 * grace)
			b.Leave(EndedInSilence, 5)
		}},
		"in order": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInOrder, 5)
		}},
		"in order, and then the next in silence": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInOrder, 5)
			time.Sleep(10 * grace)
			b = s.Bearer("a")
			c.call(b, c.call(b, 0))
			b.Leave(EndedInSilence, 5)
		}},
		"one in silence, and the last in order": {2, func(c *clients, s *Service) {
			a, b := s.Bearer("a"), s.Bearer("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Leave(EndedInSilence, 5)
			b.Leave(EndedInOrder, 5)
		}},
		"a connection without leases, after one in order": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInOrder, 5)
			s.Bearer("a").Leave(EndedInSilence, 5)
		}},
		"a connection without leases, within the grace": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(grace / 2)
			b = s.Bearer("a")
			time.Sleep(grace / 4)
			b.Leave(EndedInSilence, 5)
		}},
		"after a reply": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedAfterReply, 5)
		}},
		"after a burst": {10, func(c *clients, s *Service) {
			b := s.Bearer("a")
			for range 20 {
				c.call(b, 0)
			}
			b.Leave(EndedAfterReply, 5)
		}},
		"after a reply, though it was busy": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			c.busy(b)
			b.Leave(EndedAfterReply, 5)
		}},
		"after a reply, of a client that spends connections": {2, func(c *clients, s *Service) {
			b := s.Bearer("a")
			c.call(b, 0)
			b.Leave(EndedAfterReply, 5)
			b = s.Bearer("a")
			c.call(b, 0)
			c.busy(b)
			b.Leave(EndedAfterReply, 5)
		}},
		"in silence, of a client that closes connections": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			lease := c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			b = s.Bearer("a")
			c.call(b, lease)
			c.call(b, 0)
			time.Sleep(10 * grace)
			b.Leave(EndedInSilence, 5)
		}},
		"in silence, of a client that was taken for dead": {1, func(c *clients, s *Service) {
			b := s.Bearer("a")
			lease := c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			time.Sleep(2 * grace)
			c.wantOut(0)
			b = s.Bearer("a")
			c.call(b, lease)
			c.call(b, 0)
			b.Leave(EndedInSilence, 5)
		}},
		"deaf, of a client that closes connections": {0, func(c *clients, s *Service) {
			b := s.Bearer("a")
			lease := c.call(b, 0)
			b.Leave(EndedInSilence, 5)
			b = s.Bearer("a")
			c.call(b, lease)
			c.call(b, 0)
			b.Leave(EndedDeaf, 5)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := service(t, Settings{Clock: clock.New(), LeaseGrace: grace}, tenPlaces)
				c := &clients{t: t, service: s}
				test.plays(c, s)
				time.Sleep(grace)
				synctest.Wait()
				c.wantOut(test.out)
				if test.out > 0 {
					return
				}
				for _, p := range s.book.peers {
					if p.open > 0 || len(p.left) > 0 {
						t.Errorf("the book still has %+v", p)
					}
				}
			})
		})
	}
}

// TestNoGrace has leases outlive their client.
func TestNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, Settings{Clock: clock.New()}, tenPlaces)
		c := &clients{t: t, service: s}
		b := s.Bearer("a")
		c.call(b, 0)
		b.Leave(EndedInSilence, 5)
		time.Sleep(time.Minute)
		c.wantOut(1)
	})
}

// TestLeasesAreCounted holds what the metrics say of leases that come back, come twice, and run out.
func TestLeasesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, Settings{Clock: clock.New(), LeaseGrace: time.Second}, tenPlaces)
		c := &clients{t: t, service: s}
		b := s.Bearer("a")
		first := c.call(b, 0)
		c.call(b, first)
		c.call(b, first)
		c.call(b, 999_999_999)
		c.call(b, 0)
		c.call(b, 0)
		b.Reset(c.calls)
		c.wantOut(1)
		time.Sleep(time.Hour)
		c.wantOut(0)
		for name, want := range map[string]float64{
			"sluice_leases_returned_total": 2, "sluice_leases_ignored_total": 2, "sluice_leases_expired_total": 1,
		} {
			if got := gathered(t, s, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// TestAResetReservationCostsNothing resets a call whose request would have been charged for what it had reserved: it
// has not begun.
func TestAResetReservationCostsNothing(t *testing.T) {
	s := service(t, Settings{Clock: clock.New()}, "{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 100, unit: hour, reserve: {amount: 60}}}]}")
	c := &clients{t: t, service: s}
	b := s.Bearer("a")
	for range 3 {
		if c.call(b, 0) == 0 {
			t.Fatal("60 of 100 cannot be reserved")
		}
		b.Reset(c.calls)
	}
	if got := gathered(t, s, "sluice_leases_returned_total"); got != 3 {
		t.Errorf("%v leases came back, want 3", got)
	}
}

// TestReservedHitsAreCounted settles one request at a cost and one without, and leaves one open.
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
		for range 2 { // the second time the lease is stale, and the cost is one that comes alone
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

// TestTheBookIsBounded enters more leases than the book may have, of calls that share streams, clients that come and
// go, and a lease that is entered twice.
func TestTheBookIsBounded(t *testing.T) {
	s := service(t, Settings{Clock: clock.New()}, tenPlaces)
	counters := &telemetry.RuleCounters{}
	var last *Bearer
	for n := range uint64(mostLeases + 1000) {
		if n%100 == 0 {
			if last != nil {
				last.Leave(EndedInOrder, 5)
			}
			last = s.Bearer(string(rune('a' + n/100%26)))
		}
		for range 2 {
			s.book.enter(0, &given{
				key: leaseKey{identity.ID{Hi: n}, limiter.FirstLease}, counters: counters, bearer: last, stream: uint32(n / 3), expires: limiter.Time(n + 1),
			}, &limiter.Policy{}, "", nil, &descriptors.Descriptor{})
		}
	}
	if n := len(s.book.leases); n != mostLeases || len(s.book.queue) != n {
		t.Errorf("the book has %d leases, and %d in its queue; want %d", n, len(s.book.queue), mostLeases)
	}
	if s.book.leases[leaseKey{identity.ID{Hi: 999}, limiter.FirstLease}] != nil || s.book.leases[leaseKey{identity.ID{Hi: 1000}, limiter.FirstLease}] == nil {
		t.Error("the book has not forgotten those that are the first to be free by themselves")
	}
	last.Leave(EndedInOrder, 5)
	s.book.mu.Lock()
	s.book.expireLocked(1 << 62)
	s.book.mu.Unlock()
	if len(s.book.leases) > 0 || len(s.book.queue) > 0 || len(s.book.peers) > 0 {
		t.Errorf("in the end the book has %d leases, %d in its queue, and %d clients", len(s.book.leases), len(s.book.queue), len(s.book.peers))
	}
}

// TestLeasesLeaveNoGarbage takes leases and brings them back, of places and of reservations.
func TestLeasesLeaveNoGarbage(t *testing.T) {
	for _, rules := range []string{
		strings.Replace(tenPlaces, "10", "1000", 1),
		"{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 2000, unit: hour, reserve: {amount: 1, unsettled: release}}}]}",
	} {
		s := service(t, Settings{Clock: clock.New()}, rules)
		c := &clients{t: t, service: s}
		b := s.Bearer("a")
		for range 2 { // the first makes everything grow
			leases := make([]uint64, 500)
			for i := range leases {
				leases[i] = c.call(b, 0)
			}
			for _, lease := range leases {
				c.call(b, lease)
			}
		}
		x, request := &Exchange{Bearer: b}, marshal(t, simpleRequest())
		if allocs := testing.AllocsPerRun(400, func() {
			x.Stream += 2
			if _, _, err := s.Answer(s.now(), time.Minute, x, request); err != nil {
				t.Fatal(err)
			}
		}); allocs > 0 {
			t.Errorf("a call that takes a lease allocates %v times under %s", allocs, rules)
		}
		if x.OverLimit() {
			t.Errorf("it was denied under %s", rules)
		}
	}
}
