package blocks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// tenant is a counter, and how often clients request it.
type tenant struct {
	name   string
	limit  int
	window time.Duration
	weight int
	hot    bool   // clients request more than the limit
	fields string // further fields of the limit in YAML
}

// tenants have hot and cold counters.
var tenants = []tenant{
	{name: "small", limit: 2000, window: time.Second, weight: 10, hot: true},
	{name: "large", limit: 20_000, window: time.Second, weight: 12},
	{name: "long", limit: 4000, window: 2 * time.Second, weight: 10, hot: true},
	{name: "cold", limit: 5, window: time.Second, weight: 1},
	{name: "lazy", limit: 50, window: 2 * time.Second, weight: 1},
}

// rules returns the rules of all tenants, with the given factor for all limits.
func rules(all []tenant, factor int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for _, one := range all {
		fmt.Fprintf(&b, "  - {key: tenant, value: %s, rate_limit: {unit: second, unit_multiplier: %d, requests_per_unit: %d%s}}\n",
			one.name, one.window/time.Second, one.limit*factor, one.fields)
	}
	return b.String()
}

// fleet is several sluices with one store, their clients, and a ledger for each tenant.
type fleet struct {
	store    *storetest.Server
	tenants  []tenant
	ledgers  []*ledger
	config   string
	args     []string
	addrs    []string // of the store
	sluices  []*atomic.Pointer[sluice.Sluice]
	services []rlsv3.RateLimitServiceClient
	timeout  time.Duration // of a request
	single   bool          // all requests have one hit
	hasty    bool          // half of the requests have up to an eighth of the timeout
	requests atomic.Int64  // answered
	failed   atomic.Int64  // without an answer, or with an error
	stops    []func()
}

// direct returns the addresses of a store for three sluices.
func direct(s *storetest.Server) []string { return []string{s.Addr, s.Addr, s.Addr} }

// startFleet starts a sluice for each of the given addresses of the store, with further arguments.
func startFleet(t *testing.T, store *storetest.Server, addrs []string, all []tenant, timeout time.Duration, args ...string) *fleet {
	t.Helper()
	return startFleetAnd(t, "", store, addrs, all, timeout, args...)
}

// startFleetAnd is startFleet with rules of other domains.
func startFleetAnd(t *testing.T, others string, store *storetest.Server, addrs []string, all []tenant, timeout time.Duration, args ...string) *fleet {
	t.Helper()
	text := rules(all, 1)
	if others != "" {
		text += "---\n" + others
	}
	f := startSluices(t, store, addrs, text, timeout, args...)
	f.tenants = all
	for _, one := range all {
		f.ledgers = append(f.ledgers, newLedger(one.window))
	}
	return f
}

// startSluices is startFleet with the given rules, and without tenants. Without rules, the arguments
// say where the rules are.
func startSluices(t *testing.T, store *storetest.Server, addrs []string, rules string, timeout time.Duration, args ...string) *fleet {
	t.Helper()
	f := &fleet{store: store, addrs: addrs, config: filepath.Join(t.TempDir(), "rules.yaml"), timeout: timeout}
	f.args = append([]string{"--store-blocks", "auto"}, args...)
	if rules != "" {
		suite.Replace(t, f.config, rules)
		f.args = append(f.args, "--config", f.config)
	}
	for n := range addrs {
		s := new(atomic.Pointer[sluice.Sluice])
		s.Store(f.start(t, n))
		conn, err := grpc.NewClient("passthrough:///sluice", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", s.Load().Addr("grpc")) // also after a restart
			}))
		must.OK(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		f.sluices = append(f.sluices, s)
		f.services = append(f.services, rlsv3.NewRateLimitServiceClient(conn))
	}
	return f
}

func (f *fleet) options(n int) sluice.Options {
	return sluice.Options{Binary: sluiceBinary, Args: append([]string{"--store", "redis://" + f.addrs[n]}, f.args...)}
}

// start starts a sluice and waits until it uses the store: it accepts calls after a second without
// the store, which a busy machine may exceed.
func (f *fleet) start(t *testing.T, n int) *sluice.Sluice {
	t.Helper()
	s := suite.StartSluice(t, f.options(n))
	suite.Eventually(t, "the store is used", func() bool { return suite.Metrics(t, s).Sum("sluice_store_up") == 1 })
	return s
}

// restart starts a sluice that has ended again.
func (f *fleet) restart(t *testing.T, n int) {
	t.Helper()
	f.sluices[n].Store(f.start(t, n))
}

// request sends one request of a tenant to a replica, and records it.
func (f *fleet) request(ctx context.Context, replica, which, hits int) (admitted, answered bool) {
	timeout := f.timeout
	if f.hasty && rand.IntN(2) == 0 {
		timeout = time.Duration(rand.Int64N(int64(f.timeout / 8)))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: f.tenants[which].name}},
		HitsAddend: wrapperspb.UInt64(uint64(hits)),
	}}}
	start := time.Now()
	reply, err := f.services[replica].ShouldRateLimit(ctx, request)
	end := time.Now()
	if err != nil {
		f.failed.Add(1)
		return false, false
	}
	f.requests.Add(1)
	admitted = reply.GetOverallCode() == rlsv3.RateLimitResponse_OK
	f.ledgers[which].record(start, end, hits, admitted)
	return admitted, true
}

// load sends requests of random tenants from n clients to each of the given replicas, by default
// all, until the returned function is called. Most requests have one hit.
func (f *fleet) load(t *testing.T, n int, replicas ...int) (stop func()) {
	t.Helper()
	if replicas == nil {
		replicas = []int{0, 1, 2}
	}
	total := 0
	for _, one := range f.tenants {
		total += one.weight
	}
	var stopped atomic.Bool
	var clients sync.WaitGroup
	for _, replica := range replicas {
		for range n {
			clients.Go(func() {
				for !stopped.Load() {
					which, pick := 0, rand.IntN(total)
					for ; pick >= f.tenants[which].weight; which++ {
						pick -= f.tenants[which].weight
					}
					hits := 1
					if !f.single && rand.IntN(8) == 0 {
						hits += rand.IntN(20)
					}
					f.request(context.WithoutCancel(t.Context()), replica, which, hits)
				}
			})
		}
	}
	stop = sync.OnceFunc(func() {
		stopped.Store(true)
		clients.Wait()
	})
	t.Cleanup(stop)
	f.stops = append(f.stops, stop)
	return stop
}

// stop ends all load.
func (f *fleet) stop() {
	for _, stop := range f.stops {
		stop()
	}
}

// share returns the admitted hits of a tenant in all windows but the first and the last, and those
// that its limit and its requests allow.
func (f *fleet) share(tenant int) (admitted, admissible int) {
	l := f.ledgers[tenant]
	all := l.all()
	for w := all.first + 1; w < all.last; w++ {
		a, d := l.certain(w)
		admitted += a
		admissible += min(f.tenants[tenant].limit, a+d)
	}
	return admitted, admissible
}

// verify checks that no tenant exceeds the given factor times its limit in any window.
func (f *fleet) verify(t *testing.T, bound func(tenant int, window int64) int) {
	t.Helper()
	for i, l := range f.ledgers {
		admitted, denied := l.total()
		t.Logf("%s: %d hits admitted, %d denied", f.tenants[i].name, admitted, denied)
		if bad := l.exceeded(func(window int64) int { return bound(i, window) }); bad != "" {
			t.Errorf("%s with a limit of %d: %s", f.tenants[i].name, f.tenants[i].limit, bad)
		}
	}
}

// exact is the bound without faults: the limit.
func (f *fleet) exact(tenant int, _ int64) int { return f.tenants[tenant].limit }

// reset resets the counter of a tenant with the operators' API of a replica.
func (f *fleet) reset(t *testing.T, replica, which int) bool {
	t.Helper()
	return f.resetCounter(t, replica, "d", "tenant="+f.tenants[which].name)
}

// resetCounter resets the counters of a descriptor with the operators' API of a replica.
func (f *fleet) resetCounter(t *testing.T, replica int, domain, descriptor string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, f.counters(replica, domain, descriptor), http.NoBody)
	must.OK(t, err)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = reply.Body.Close()
	return reply.StatusCode == http.StatusOK
}

// counters returns the address of the counters of a descriptor at a replica.
func (f *fleet) counters(replica int, domain, descriptor string) string {
	query := url.Values{"domain": {domain}, "descriptor": {descriptor}}
	return "http://" + f.sluices[replica].Load().Addr("debug") + "/counters?" + query.Encode()
}

func long(t *testing.T) bool {
	t.Helper()
	return effort.Level(t) >= effort.All
}

// times returns few, or with SLUICE_EFFORT=100 many.
func times(t *testing.T, few, many int) int {
	t.Helper()
	if long(t) {
		return many
	}
	return few
}
