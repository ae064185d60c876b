package leases

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const (
	tenPermits = "{domain: d, descriptors: [{key: k, rate_limit: {name: streams, algorithm: concurrency, requests_per_unit: 10, unit: hour}}]}"
	reserves   = "{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 1000, unit: hour, reserve: {amount: 60, unsettled: keep, ttl: 1h}}}]}"
	noLimit    = "{domain: e}"
	grace      = time.Second
)

// tableDecider decides synchronously, with the counters of a table.
type tableDecider struct{ *limiter.Table }

func (d tableDecider) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, _ limiter.Waiter) (bool, error) {
	d.Table.Decide(now, b)
	return true, nil
}

// clients are the clients of a lessor whose counters are in a table.
type clients struct {
	*Lessor

	t        *testing.T
	table    *limiter.Table
	metrics  *telemetry.Metrics
	counters *telemetry.RuleCounters
	rules    atomic.Pointer[descriptors.Set]
	stream   uint32 // stream of the last call
	last     Key    // key of the last lease
}

// newClients returns clients of a lessor with a clock, counters in memory and active rules. change
// may modify the lessor's options.
func newClients(t *testing.T, rules string, change func(*Options)) *clients {
	t.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &clients{t: t, table: table, metrics: metrics}
	c.serve(rules)
	c.counters = metrics.Rules.Configure([]string{"d"}, 1, func(int) telemetry.RuleLimit {
		return telemetry.RuleLimit{Key: telemetry.NewRuleKey("d", "", []byte("k_v"), 1, 3), Window: time.Hour, Leases: true}
	}).Get(0)
	now := clock.New()
	options := Options{
		Grace: grace, Decider: tableDecider{table}, Metrics: &metrics.Leases,
		Now: func() limiter.Time {
			at, _ := now.Now()
			return at
		},
		Panicked: func(value any) { t.Error(value) },
		Plan: func(p *descriptors.Plan, r *descriptors.Request) *limiter.Partition {
			c.rules.Load().Plan(p, r, descriptors.Global{ReadOnly: true})
			return nil
		},
	}
	if change != nil {
		change(&options)
	}
	c.Lessor = New(options)
	metrics.Rules.BeforeCollect(c.Expire)
	return c
}

// serve activates rules. It does not review leases.
func (c *clients) serve(rules string) {
	c.t.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(rules))
	if err := ds.Err(); err != nil {
		c.t.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{})
	if err := ds.Err(); err != nil {
		c.t.Fatal(err)
	}
	c.rules.Store(set)
}

// decide decides a request with the given hits. With 1, it is a start.
func (c *clients) decide(hits uint64, refund bool) *descriptors.Plan {
	p := new(descriptors.Plan)
	r := request()
	r.Descriptors[0].Hits, r.Descriptors[0].HasHits, r.Descriptors[0].Refund = hits, hits != 1, refund
	c.rules.Load().Plan(p, r, descriptors.Global{})
	c.table.Decide(c.options.Now(), &p.Batch)
	return p
}

func request() *descriptors.Request {
	return &descriptors.Request{Domain: []byte("d"), Descriptors: []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: []byte("k"), Value: []byte("v")}}},
	}}
}

// call makes a call on a connection. It calls the lessor as package answer does, and returns the
// lease that the call acquired, 0 if it is denied. If lease is not 0, the call is the end call of
// that lease.
func (c *clients) call(conn *Connection, lease uint64) uint64 {
	c.t.Helper()
	c.stream += 2
	now := c.options.Now()
	c.RecordCall(conn, now)
	if lease > 0 {
		p := c.decide(lease, true)
		c.Return(conn, Key{p.Batch.Charges[0].ID, lease})
		return 0
	}
	p := c.decide(1, false)
	charge := &p.Batch.Charges[0]
	lease = p.Batch.Lease(0)
	if p.Batch.Denied {
		return 0
	}
	c.last = Key{charge.ID, lease}
	r := request()
	c.Grant(now, &Lease{
		Key: c.last, Counters: c.counters, Connection: conn, Stream: c.stream, Expires: now + limiter.Time(charge.Policy.LeaseLife()),
	}, charge.Policy, &Origin{p.LeaseLimit(0, 0), r.Domain, &r.Descriptors[0]})
	return lease
}

// wantLeases checks the number of leases in the counter and in the metric.
func (c *clients) wantLeases(want uint64) {
	c.t.Helper()
	if held := c.decide(0, false).Batch.Decisions[0].Before; held != want {
		c.t.Errorf("the counter contains %d leases, want %d", held, want)
	}
	if n := c.gathered("sluice_leases_active"); n != float64(want) {
		c.t.Errorf("the metric counts %v leases, want %d", n, want)
	}
}

// wantEmpty checks that the lessor tracks neither leases nor clients.
func (c *clients) wantEmpty() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leases) > 0 || len(c.queue) > 0 || len(c.clients) > 0 || c.originBytes > 0 {
		c.t.Errorf("there are %d leases, %d of them in the queue, %d clients and %d bytes of origins, want none",
			len(c.leases), len(c.queue), len(c.clients), c.originBytes)
	}
}

// gathered returns the sum of a metric.
func (c *clients) gathered(name string) (sum float64) {
	c.t.Helper()
	families, err := c.metrics.Registry.Gather()
	if err != nil {
		c.t.Fatal(err)
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

// TestEventsEndLeases checks the transitions of a granted lease in the diagram of doc.go.
func TestEventsEndLeases(t *testing.T) {
	type outcome struct {
		tracked  int     // number of tracked leases
		held     uint64  // number of leases in the counter
		expired  float64 // value of the limit's metric of expired leases
		revoked  float64 // value of the metric of revoked leases
		recycled int     // number of leases whose memory can be reused
		charged  uint64  // charged hits, for a reservation
	}
	tests := map[event]struct {
		trigger func(c *clients, conn *Connection, lease uint64)
		want    outcome
	}{
		returned: {func(c *clients, conn *Connection, lease uint64) { c.call(conn, lease) }, outcome{recycled: 1, charged: 60}},
		expired: {func(c *clients, _ *Connection, _ uint64) {
			time.Sleep(2 * time.Hour)
			c.Expire()
		}, outcome{expired: 1, recycled: 1}},
		counterReset: {func(c *clients, _ *Connection, _ uint64) {
			p := c.decide(0, false)
			c.table.Reset(c.options.Now(), &p.Batch, 0)
			c.Forget(c.last.ID)
		}, outcome{recycled: 1}},
		displaced: {func(c *clients, _ *Connection, _ uint64) { // by a lease with the same key; see TestLessorIsBounded
			c.Grant(c.options.Now(), &Lease{Key: c.last, Counters: c.counters, Expires: 1 << 62}, &limiter.Policy{}, &Origin{"", nil, &descriptors.Descriptor{}})
		}, outcome{tracked: 1, held: 1, charged: 60}},
		callReset: {func(c *clients, conn *Connection, _ uint64) { conn.ResetCall(c.stream) }, outcome{revoked: 1}},
		clientDead: {func(_ *clients, conn *Connection, _ uint64) {
			conn.Close(Unresponsive, 1)
			time.Sleep(grace)
			synctest.Wait()
		}, outcome{revoked: 1, charged: 60}},
		limitRemoved: {func(c *clients, _ *Connection, _ uint64) {
			rules := c.rules.Load()
			c.serve(noLimit)
			c.Review(true)
			c.rules.Store(rules)
		}, outcome{revoked: 1}},
	}
	for e := range events {
		test, ok := tests[e]
		if !ok {
			t.Fatalf("event %d has no test", e)
		}
		for _, rules := range []string{tenPermits, reserves} {
			for _, shared := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					c := newClients(t, rules, func(o *Options) { o.Shared = shared })
					conn, want := c.Connect("a"), test.want
					lease := c.call(conn, 0)
					test.trigger(c, conn, lease)
					got := outcome{
						tracked: len(c.leases), held: c.decide(0, false).Batch.Decisions[0].Before,
						expired: c.gathered("sluice_leases_expired_total"), revoked: c.gathered("sluice_leases_released_total"), recycled: len(c.spare),
					}
					if rules == tenPermits {
						want.charged = 0
					} else {
						got.charged, got.held, want.held = got.held, 0, 0
					}
					wantActive := float64(want.tracked)
					if shared {
						wantActive = 0
					}
					if got != want {
						t.Errorf("event %d, shared %v, %s: got %+v, want %+v", e, shared, rules, got, want)
					}
					if n := c.gathered("sluice_leases_active"); n != wantActive {
						t.Errorf("event %d, shared %v: the metric counts %v leases, want %v", e, shared, n, wantActive)
					}
					if e.revokes() != (want.revoked > 0) {
						t.Errorf("event %d revokes leases: %v", e, e.revokes())
					}
				})
			}
		}
	}
}

// TestGrantEndsExpiredLeases grants a lease after another one has expired.
func TestGrantEndsExpiredLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClients(t, tenPermits, nil)
		c.call(nil, 0)
		time.Sleep(time.Hour)
		c.call(nil, 0)
		if n := c.Len(); n != 1 {
			t.Errorf("%d leases are tracked, want 1", n)
		}
	})
}

// TestRevokedLeasesAreCountedByEvent checks the metric of each event that revokes leases.
func TestRevokedLeasesAreCountedByEvent(t *testing.T) {
	c := newClients(t, tenPermits, nil)
	m := &c.metrics.Leases
	for e := callReset; e < events; e++ {
		want := map[event]any{callReset: m.Reset, clientDead: m.Connection, limitRemoved: m.Reload}[e]
		if got := c.revokedBy(e); want == nil || got != want {
			t.Errorf("event %d is counted by %v, want %v", e, got.Desc(), want)
		}
	}
}

// TestReturnReportsWhetherALeaseWasGranted returns a lease twice, and one that was never granted.
func TestReturnReportsWhetherALeaseWasGranted(t *testing.T) {
	c := newClients(t, tenPermits, nil)
	c.call(nil, 0)
	if !c.Return(nil, c.last) {
		t.Error("Return reports that the lease was not granted")
	}
	if c.Return(nil, c.last) || c.Return(c.Connect("a"), Key{Number: 7}) {
		t.Error("Return reports that a lease was granted, but it was returned before, or never granted")
	}
}

// TestStaleLeaseEnds returns a lease that its counter has released without notifying the lessor.
func TestStaleLeaseEnds(t *testing.T) {
	c := newClients(t, tenPermits, nil)
	conn := c.Connect("a")
	lease := c.call(conn, 0)
	p := c.decide(0, false)
	c.table.Reset(c.options.Now(), &p.Batch, 0)
	c.call(conn, lease)
	c.wantLeases(0)
}

// TestLessorIsBounded grants more leases than a lessor tracks, each of them twice, while clients
// connect and disconnect. Several leases belong to calls on one stream.
func TestLessorIsBounded(t *testing.T) {
	c := newClients(t, tenPermits, nil)
	var last *Connection
	for n := range uint64(maxLeases + 1000) {
		if n%100 == 0 {
			if last != nil {
				last.Close(Graceful, 5)
			}
			last = c.Connect(string(rune('a' + n/100%26)))
		}
		for range 2 {
			c.Grant(0, &Lease{
				Key: Key{identity.ID{Hi: n}, limiter.FirstLease}, Counters: c.counters, Connection: last, Stream: uint32(n / 3), Expires: limiter.Time(n + 1),
			}, &limiter.Policy{}, &Origin{"", nil, &descriptors.Descriptor{}})
		}
	}
	if n := len(c.leases); n != maxLeases || len(c.queue) != n {
		t.Errorf("%d leases are tracked, and %d are in the queue; want %d", n, len(c.queue), maxLeases)
	}
	if c.leases[Key{identity.ID{Hi: 999}, limiter.FirstLease}] != nil || c.leases[Key{identity.ID{Hi: 1000}, limiter.FirstLease}] == nil {
		t.Error("the displaced leases are not those that expire first")
	}
	last.Close(Graceful, 5)
	c.mu.Lock()
	c.expireLocked(1 << 62)
	c.mu.Unlock()
	c.wantEmpty()
	if len(c.spare) > maxSpare {
		t.Errorf("the memory of %d leases is retained, want at most %d", len(c.spare), maxSpare)
	}
}

// TestLeaseKeepsItsPolicy changes the policy of a charge that has granted a lease, as the next
// request of its exchange does.
func TestLeaseKeepsItsPolicy(t *testing.T) {
	c := newClients(t, reserves, nil)
	policy := limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: time.Hour, Reserve: limiter.NewReserve(2, time.Minute, true)}
	k := Key{Number: limiter.FirstLease}
	c.Grant(1, &Lease{Key: k, Counters: c.counters, Expires: 1 << 62}, &policy, &Origin{"", nil, &descriptors.Descriptor{}})
	policy.Reserve.Set(3, time.Hour, false)
	policy.Limit = 4
	kept := c.leases[k].policy
	if got, want := []any{kept.Limit, kept.Reserve.MaxReservations(), kept.Reserve.Life(), kept.Reserve.ReleasesWithoutCost()},
		[]any{uint32(1), uint32(2), time.Minute, true}; !slices.Equal(got, want) {
		t.Errorf("the lease has the policy %v, want %v as before", got, want)
	}
}
