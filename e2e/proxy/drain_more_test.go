//go:build more

package proxy_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestConnectionAgeFailsNoCall sets a short maximum age of connections. The maximum age exists so
// that clients spread over new replicas.
func TestConnectionAgeFailsNoCall(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{
		Args: []string{"--config", suite.WriteRules(t, highLimitRules), "--max-connection-age", "100ms"},
	})
	p := startProxy(t, []listener{
		{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
	}, "", limits)
	l := startLoad(t, 8, func() (string, error) {
		got, err := p.getFrom(t.Context(), "ingress", "/", "x-user: al")
		return strconv.Itoa(got.status), err
	})
	suite.Eventually(t, "20 connections to sluice", func() bool { return p.connections(t) >= 20 })
	if got := slices.Collect(maps.Keys(l.stop())); !slices.Equal(got, []string{"200"}) {
		t.Errorf("answers are %q, want 200 only", got)
	}
}

// connections returns the number of connections that Envoy has opened to sluice.
func (p *proxy) connections(t *testing.T) int {
	t.Helper()
	return p.envoyStat(t, "cluster.sluice.upstream_cx_total")
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: patience,
		}),
	)
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func request() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: "al"}}},
	}}
}

// TestCallInFlightAtSIGTERM starts a call, and finishes it after sluice has sent GOAWAY. The call
// is answered.
func TestCallInFlightAtSIGTERM(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, highLimitRules)}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := dial(t, limits.Addr("grpc"))
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, rls.RateLimitService_ShouldRateLimit_FullMethodName)
	must.OK(t, err)
	// A reply to a later call on the connection implies that the first has begun.
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request()); err != nil {
		t.Fatal(err)
	}
	must.OK(t, limits.Signal(syscall.SIGTERM))
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatalf("the connection stays ready after SIGTERM: %v", ctx.Err())
	}
	if err := call.SendMsg(request()); err != nil {
		t.Fatalf("send the request: %v", err)
	}
	must.OK(t, call.CloseSend())
	var got rls.RateLimitResponse
	if err := call.RecvMsg(&got); err != nil || got.GetOverallCode() != rls.RateLimitResponse_OK {
		t.Errorf("the call got %v, %v, want OK", &got, err)
	}
	if code, err := limits.Wait(ctx); code != 0 || err != nil {
		t.Errorf("Wait() = %d, %v, want 0, nil; log of sluice:\n%s", code, err, limits.Log())
	}
}

// TestRestartLosesNoCall has clients that wait for the server while it is down. A call fails if a
// server accepts it and does not reply.
func TestRestartLosesNoCall(t *testing.T) {
	t.Parallel()
	config := suite.WriteRules(t, highLimitRules)
	start := func(addr string) *sluice.Sluice {
		return startSluice(t, sluice.Options{
			Args:  []string{"--config", config},
			Addrs: map[string]string{"grpc": addr},
		})
	}
	addr := storetest.FreeAddress(t)
	limits := start(addr)
	conn := dial(t, addr)
	client := rls.NewRateLimitServiceClient(conn)
	l := startLoad(t, 16, func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := client.ShouldRateLimit(ctx, request(), grpc.WaitForReady(true))
		return got.GetOverallCode().String(), err
	})
	for range 3 {
		l.awaitAnswers(t, 1000)
		stopProcess(t, limits.Process)
		limits = start(addr)
	}
	l.awaitAnswers(t, 1000)
	if got := slices.Collect(maps.Keys(l.stop())); !slices.Equal(got, []string{"OK"}) {
		t.Errorf("answers are %q, want OK only", got)
	}
}
