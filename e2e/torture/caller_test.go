package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// connections is the number of connections of a caller; Envoy has one per worker.
const connections = 4

// Dial connects to a server, host:port or the path of a socket. It reconnects immediately when a
// connection ends, and closes the connection when the test ends.
func Dial(tb testing.TB, addr string) *grpc.ClientConn {
	tb.Helper()
	target := "passthrough:///" + addr
	if strings.HasPrefix(addr, "/") { // the form in which sluice logs a socket
		target = "unix://" + addr
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: Patience,
		}),
	)
	must.OK(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Caller returns a function for a [Load] that charges one to three counters of the ledger, some far
// more often than others, over a few connections to addr. It takes its seed from rnd.
//
// It makes the first hit of every bucket before the load. A bucket refills from its first hit on: of
// two concurrent first calls, the one with the earlier time could be decided second, and its reply
// would contain one remaining hit too few.
func (l *Ledger) Caller(tb testing.TB, addr string, rnd *rand.Rand) CallFunc {
	tb.Helper()
	clients := make([]rls.RateLimitServiceClient, connections)
	for i := range clients {
		clients[i] = rls.NewRateLimitServiceClient(Dial(tb, addr))
	}
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	for i := range l.values {
		_, err := l.Call(ctx, clients[0], Key{"token_bucket", fmt.Sprint("v", i)}, Key{"leaky_bucket", fmt.Sprint("v", i)})
		if err != nil {
			tb.Fatalf("make the first hit of each bucket: %v", err)
		}
	}
	var mu sync.Mutex // rand.Rand is not safe for concurrent use
	own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
	draw := func() (rls.RateLimitServiceClient, []Key) {
		mu.Lock()
		defer mu.Unlock()
		keys := make([]Key, 0, 3)
		for range 1 + own.IntN(3) {
			random := own.Float64() // squared, so that values with low numbers are frequent
			k := Key{rules[own.IntN(len(rules))].name, fmt.Sprint("v", int(random*random*float64(l.values)))}
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		return clients[own.IntN(len(clients))], keys
	}
	return func(ctx context.Context) (string, error) {
		client, keys := draw()
		return l.Call(ctx, client, keys...)
	}
}

// Call charges one hit for each key and checks the reply. The keys must differ.
func (l *Ledger) Call(ctx context.Context, client rls.RateLimitServiceClient, keys ...Key) (string, error) {
	floors := make([]int, len(keys))
	for i, k := range keys {
		floors[i] = l.Begin(k)
	}
	got, err := client.ShouldRateLimit(ctx, Request(keys...))
	if err != nil {
		for _, k := range keys {
			l.Lost(k)
		}
		// Messages contain addresses and times, so only the code is counted.
		return "", errors.New(status.Code(err).String())
	}
	if len(got.GetStatuses()) != len(keys) {
		return "", fmt.Errorf("%d statuses for %d descriptors", len(got.GetStatuses()), len(keys))
	}
	over := false
	for i, k := range keys {
		over = over || got.GetStatuses()[i].GetCode() == rls.RateLimitResponse_OVER_LIMIT
		l.Answer(k, floors[i], got.GetStatuses()[i])
	}
	if over != (got.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT) {
		return "", fmt.Errorf("overall code %v of statuses %v", got.GetOverallCode(), got.GetStatuses())
	}
	return got.GetOverallCode().String(), nil
}

// Request returns a request that charges one hit for each key.
func Request(keys ...Key) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	for _, k := range keys {
		r.Descriptors = append(r.Descriptors, &rlcommon.RateLimitDescriptor{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: k.Rule, Value: k.Value}},
		})
	}
	return r
}

// CheckCounters reads every counter and the metrics after the load has stopped. It fails the test
// for each wrong reply since the start.
func (l *Ledger) CheckCounters(tb testing.TB, s *sluice.Sluice) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	conn := Dial(tb, s.Addr("grpc"))
	defer conn.Close() // frees file descriptors of sluice
	client := rls.NewRateLimitServiceClient(conn)
	for keys := range slices.Chunk(l.keys(), 100) {
		r := Request(keys...)
		for _, d := range r.GetDescriptors() {
			d.HitsAddend = wrapperspb.UInt64(0)
		}
		got, err := client.ShouldRateLimit(ctx, r)
		if err != nil {
			tb.Fatalf("peek at the counters: %v", err)
		}
		for i, k := range keys {
			l.peek(k, got.GetStatuses()[i])
		}
	}
	page := suite.Metrics(tb, s)
	var all hits
	for _, r := range rules {
		h := l.hits(r.name)
		all.passed, all.denied, all.unknown = all.passed+h.passed, all.denied+h.denied, all.unknown+h.unknown
		label := fmt.Sprintf("key1=%q", r.name)
		for name, want := range map[string]int{"total_hits": h.passed + h.denied, "within_limit": h.passed, "over_limit": h.denied} {
			got := int(page.Sum("ratelimit_service_rate_limit_"+name, label))
			if got < want || got > want+h.unknown {
				tb.Errorf("%s: the metric %s is %d, want %d to %d", r.name, name, got, want, want+h.unknown)
			}
		}
	}
	if got := page.Sum("sluice_counters_evicted_total"); got > 0 {
		tb.Errorf("%v counters were evicted: the counters of this test do not fit", got)
	}
	if got := page.Sum("sluice_panics_total"); got > 0 {
		tb.Errorf("%v requests panicked", got)
	}
	tb.Logf("ledger: %d counters, %d hits admitted, %d denied, %d unknown, of which %d were counted",
		len(l.keys()), all.passed, all.denied, all.unknown, l.unanswered)
	for _, fault := range l.Faults() {
		tb.Error(fault)
	}
}
