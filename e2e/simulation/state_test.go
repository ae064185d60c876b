package simulation

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// observed is a sluice, the clients that call it, and the model of its state.
type observed struct {
	*testing.T
	*stateModel

	host    string
	random  *rand.Rand
	network *network
	daemon  *daemon.Daemon
	shared  *sharedStore
	conns   []*h2client.Conn
	held    []heldLease
	silent  map[string]bool // "costs shop": no costs arrive for shop; "leases shop": no lease is returned
	limit   int             // of the rule user
	step    time.Time       // begin of the current step
	dir     string          // of the certificate; "" for none
	expires time.Time       // the certificate
	warns   time.Time       // when it is near its expiry
}

// heldLease is a lease that is never returned.
type heldLease struct {
	domain  string
	expires time.Time
}

const observedRules = `
domain: %s
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: %d } }
  - { key: tokens, rate_limit: { name: tokens, unit: hour, requests_per_unit: 100000000 } }
  - { key: streams, rate_limit: { name: streams, unit: minute, requests_per_unit: 1000, algorithm: concurrency } }
`

const removableRule = "  - { key: path, rate_limit: { unit: hour, requests_per_unit: 20 } }\n"

func (o *observed) start(ctx context.Context) {
	options := newDaemonOptions(mustHave(telemetry.New(telemetry.Options{})), func() (limiter.Time, time.Time) {
		return limiter.Time(time.Now().Add(o.ahead).UnixNano()), time.Now()
	})
	options.Logger, options.Settings.TopKeys = options.Metrics.Events.Watch(zap.NewNop()), live.Clear
	if o.shared != nil {
		options.Store = o.shared.options(&scenario{storeTimeout: time.Second, fallback: store.Local}, func(ctx context.Context, _, to string) (net.Conn, error) {
			return o.network.dial(ctx, o.host, to)
		}, o.host)
		options.Settings.Namer = descriptors.NewNamer("", nil)
	}
	o.daemon = mustHave(daemon.New(options))
	go func() {
		if err := o.daemon.Run(ctx, daemon.Steps{
			FollowRules:     func(context.Context, *errgroup.Group) error { return o.load() },
			ConfigureServer: o.configure,
		}); err != nil {
			o.Error(err)
		}
	}()
	time.Sleep(2 * time.Second)
}

func (o *observed) configure(ctx context.Context, group *errgroup.Group) (options server.Options, release func(), err error) {
	options = o.network.serverOptions(o.host)
	if o.dir != "" {
		files := testcert.PathsIn(o.dir)
		options.TLS, err = access.ServerTLS(access.TLSOptions{Cert: files.Cert, Key: files.Key, Use: "grpc", Metrics: o.daemon.Metrics.TLS("grpc"), Logger: o.daemon.Logger})
		panicOn(err)
		group.Go(daemon.Task(ctx, options.TLS.Run))
	}
	return options, nil, nil
}

// load activates rules.
func (o *observed) load() error {
	var text strings.Builder
	for i, domain := range observedDomains {
		fmt.Fprintf(&text, "---"+observedRules, domain, o.limit+i)
		if domain != o.removed {
			text.WriteString(removableRule)
		}
	}
	return loadRules(o.daemon, text.String())
}

var observedDomains = []string{"shop", "bank"}

// connect opens a connection.
func (o *observed) connect() {
	conn := mustHave(o.network.dial(o.Context(), "envoy", o.host+grpcPort))
	if o.dir != "" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	o.conns = append(o.conns, mustHave(h2client.New(conn, h2client.Options{Window: 1 << 20})))
}

// forgetClosed forgets the connections that the sluice has closed because they were idle.
func (o *observed) forgetClosed() {
	o.conns = slices.DeleteFunc(o.conns, func(c *h2client.Conn) bool { return !c.Usable() })
}

// call makes a call, which gets an error for the given reason, and tells the model.
func (o *observed) call(domain string, reason telemetry.Code, descs ...*rlcommon.RateLimitDescriptor) *rls.RateLimitResponse {
	if o.forgetClosed(); len(o.conns) == 0 {
		o.connect()
	}
	reply, c := new(rls.RateLimitResponse), observedCall{from: time.Now(), reason: reason, domain: domain, minute: o.minute(time.Now())}
	b, err := o.conns[0].Call(o.Context(), rateLimitPath, time.Minute, mustMarshal(&rls.RateLimitRequest{Domain: domain, Descriptors: descs}))
	if err == nil {
		err = proto.Unmarshal(b, reply)
	}
	c.to, c.outcome = time.Now(), outcomeOf(reply, err)
	if c.outcome == unknown || (c.outcome == failed) != (reason != "") {
		o.Fatal(domain, descs, err)
	}
	for i, s := range reply.GetStatuses() {
		e, hits := descs[i].GetEntries()[0], uint64(1)
		if n := descs[i].GetHitsAddend(); n != nil {
			hits = n.GetValue()
		}
		if s.GetCurrentLimit() != nil && hits < 1<<29 { // it has a rule and is not a lease
			c.descs = append(c.descs, observedDescriptor{e.GetKey(), e.GetValue(), hits, s.GetCode() == rls.RateLimitResponse_OVER_LIMIT})
		}
	}
	o.calls = append(o.calls, c)
	return reply
}

// state returns the state that an operator gets.
func (o *observed) state() *live.State {
	_, body, err := o.network.requestHTTP(o.Context(), operatorHost, o.host+debugPort, http.MethodGet, admin.StatePath)
	panicOn(err)
	s := new(live.State)
	panicOn(json.Unmarshal(body, s))
	return s
}

// act makes one of the things happen that the state reports.
func (o *observed) act() {
	domain, tenant := observedDomains[o.random.IntN(2)], []string{"ann", "bob", "cid"}[o.random.IntN(3)]
	one := func(key string) *rlcommon.RateLimitDescriptor { return newDescriptor(key, tenant, 1, false) }
	switch n := o.random.IntN(40); {
	case n < 8:
		for range 1 + o.random.IntN(4) {
			o.call(domain, "", one("user"))
		}
	case n < 12:
		o.call(domain, "", one("user"), one("path"))
	case n < 22:
		o.chargeTokens(domain, tenant)
	case n < 28 && o.ahead == 0:
		o.acquire(domain, one("streams"))
	case n < 30:
		o.call("", telemetry.RequestsWithoutDomain, one("user"))
	case n < 31:
		o.call(domain, telemetry.RequestsWithoutDescriptors)
	case n < 32:
		o.call(domain, telemetry.RequestsBeyondBounds, one(strings.Repeat("k", 2000)))
	case n < 34:
		o.connect()
	case n < 35 && len(o.conns) > 1:
		o.conns[1].Close()
	case n < 36:
		o.limit = 3 + o.random.IntN(4)
		if o.removed = ""; o.random.IntN(2) == 0 {
			o.removed = domain
			o.forgetPath(domain)
		}
		o.lastReset = time.Now()
		panicOn(o.load())
	case n < 38:
		what := []string{"costs ", "leases "}[n-36] + domain // a store does not report expired leases
		if n == 37 && o.shared != nil {
			return
		}
		o.silent[what] = !o.silent[what]
	case n == 38:
		o.fault()
	default:
	}
}

// chargeTokens checks a budget several times. Then a cost arrives.
func (o *observed) chargeTokens(domain, tenant string) {
	p := o.pendingOf(telemetry.CostsMissing, domain, "tokens")
	for range 1 + o.random.IntN(6) {
		o.call(domain, "", newDescriptor("tokens", tenant, 0, false))
		p.add(time.Now())
	}
	if !o.silent["costs "+domain] {
		o.call(domain, "", newDescriptor("tokens", tenant, 2+o.random.Uint64N(100), false))
		p.end(time.Now())
	}
}

// acquire acquires a lease, which is returned at once or never.
func (o *observed) acquire(domain string, d *rlcommon.RateLimitDescriptor) {
	if o.silent["leases "+domain] {
		time.Sleep(5*time.Second - time.Since(o.step)) // so that leases do not expire while others are returned
	}
	lease := uint64(o.call(domain, "", d).GetDynamicMetadata().GetFields()["streams"].GetNumberValue())
	if o.silent["leases "+domain] {
		o.held = append(o.held, heldLease{domain, time.Now().Add(time.Minute)})
		return
	}
	o.call(domain, "", newDescriptor("streams", d.GetEntries()[0].GetValue(), lease, true))
	o.pendingOf(telemetry.LeasesNotReturned, domain, "streams").end(time.Now())
}

// fault makes a fault of the clock, the store or the certificate, or ends it.
func (o *observed) fault() {
	switch {
	case o.dir != "":
		o.changeCertificate(time.Now(), time.Duration(o.random.IntN(60))*10*time.Second)
	case o.shared == nil && len(o.held) > 0: // which would expire at another time
	case o.shared == nil:
		o.ahead += time.Duration(o.random.Int64N(int64(4*time.Hour))) - 2*time.Hour
		o.stepClock()
	case o.shared.shards[0].listener == nil:
		o.shared.shards[0].start()
	case o.random.IntN(3) == 0:
		o.shared.shards[0].restart(100 * time.Millisecond)
	case o.random.IntN(2) == 0:
		o.shared.shards[0].stop()
	default:
		o.network.slow("store-0", 40*time.Millisecond, 30*time.Second)
	}
}

// changeCertificate issues a certificate that expires, or is near its expiry, after the given time.
func (o *observed) changeCertificate(now time.Time, after time.Duration) {
	after += o.step.Add(5 * time.Second).Sub(now)
	if o.random.IntN(2) == 0 { // nine tenths of its validity, which began two days ago, end then
		after = (after + 48*time.Hour/10) * 10 / 9
	}
	o.expires = now.Add(after).Truncate(time.Second)
	ca := mustHave(testcert.New("ca"))
	pair := mustHave(ca.Issue(testcert.Leaf{Names: []string{"sluice"}, Expires: o.expires}))
	_ = mustHave(testcert.Mount(o.dir, pair, ca.PEM))
	o.warns = o.expires.Add(-min(7*24*time.Hour, (o.expires.Sub(now)+48*time.Hour)/10))
}

// update tells the model what has happened without calls.
func (o *observed) update() {
	for len(o.held) > 0 && !time.Now().Before(o.held[0].expires) {
		o.pendingOf(telemetry.LeasesNotReturned, o.held[0].domain, "streams").add(o.held[0].expires)
		o.held = o.held[1:]
	}
	if o.store = live.StoreNone; o.shared != nil {
		down := o.shared.shards[0].listener == nil
		o.store = map[bool]string{false: live.StoreAvailable, true: live.StoreUnavailable}[down]
		o.active[string(telemetry.StoreUnavailable)] = down
	}
	if now := time.Now(); o.dir != "" {
		o.active[string(telemetry.CertificateExpired)] = !now.Before(o.expires)
		o.active[string(telemetry.CertificateExpiresSoon)] = !now.Before(o.warns) && now.Before(o.expires)
	}
}

// checkSum compares the sum of the states of all replicas, as sluice top shows it.
func checkSum(t *testing.T, all []*live.State) {
	t.Helper()
	sum := live.Sum([]string{"a:1", "b:1"}, all)
	want := map[telemetry.Code]bool{telemetry.ReplicasCountSeparately: all[0].Counters == "memory", telemetry.RulesDiffer: all[0].Config.Hash != all[1].Config.Hash}
	for code, active := range want {
		if got := slices.ContainsFunc(sum.Conditions, func(c telemetry.Condition) bool { return c.Code == code }); got != active {
			t.Errorf("the condition %s of all replicas is %t, want %t", code, got, active)
		}
	}
	a, b := all[0].Status, all[1].Status
	if s := sum.Status; s.Calls != a.Calls+b.Calls || s.Denied != a.Denied+b.Denied || s.Errors != a.Errors+b.Errors || s.Connections != a.Connections+b.Connections {
		t.Errorf("the status of all replicas is %+v, want the sum of %+v and %+v", s, a, b)
	}
}

// TestStateAgreesWithModel operates sluices at random and compares their states with a model of
// docs/state.md. Every step takes ten seconds: events happen at its begin, leases expire in its middle,
// and conditions are compared at its end.
func TestStateAgreesWithModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { observe(t, seed) })
		})
	}
}

func observe(t *testing.T, seed uint64) {
	t.Helper()
	random, network := rand.New(rand.NewPCG(seed, 45)), newNetwork(seed)
	ctx, cancel := context.WithCancel(t.Context())
	var shared *sharedStore
	if seed%4 == 2 {
		shared = newSharedStore(network, onePrimary)
		defer func() { shared.stop(); time.Sleep(time.Minute) }()
	}
	var all []*observed
	for i := range 2 {
		o := &observed{T: t, random: random, network: network, shared: shared, host: fmt.Sprint("sluice-", i), limit: 4, silent: map[string]bool{"costs shop": seed%2 == 0}}
		o.stateModel = &stateModel{
			fail: func(format string, args ...any) {
				t.Errorf("%v at %v: %s", o.host, time.Now(), fmt.Sprintf(format, args...))
			},
			pending: map[string]*pendingEnds{}, active: map[string]bool{},
		}
		if o.step = time.Now(); seed%4 == 3 {
			o.dir = t.TempDir()
			o.changeCertificate(time.Now(), 100*24*time.Hour)
			if i == 0 { // the other one's expires in 100 days
				time.Sleep(time.Until(o.warns.Add(-time.Minute)))
			}
		}
		o.start(ctx)
		o.steady = time.Now().Add(11 * time.Second)
		all = append(all, o)
	}
	for range 150 {
		gap := 10 * time.Second
		if random.IntN(30) == 0 {
			gap *= time.Duration(1 + random.IntN(100))
		}
		step := time.Now().Truncate(10 * time.Second).Add(gap)
		time.Sleep(time.Until(step))
		for range 1 + random.IntN(3) {
			o := all[random.IntN(2)]
			o.step = step
			o.act()
			time.Sleep(1200 * time.Millisecond)
		}
		for _, settled := range []bool{false, true} {
			at := step.Add(3 * time.Second)
			if settled {
				at = step.Add(8700 * time.Millisecond)
			}
			time.Sleep(time.Until(at.Add(time.Duration(random.Int64N(int64(time.Second))))))
			var states []*live.State
			for _, o := range all {
				o.forgetClosed()
				s := o.state()
				o.update()
				o.check(s, len(o.conns), settled)
				states = append(states, s)
			}
			checkSum(t, states)
		}
		if t.Failed() {
			break
		}
	}
	for _, o := range all {
		for _, c := range o.conns {
			c.Close()
		}
	}
	cancel()
	time.Sleep(time.Minute) // all goroutines end
}
