package answer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestPanicsUnderLoad makes concurrent calls while the rules temporarily make requests panic:
// before they are matched, before they are charged, and afterwards. These calls return INTERNAL,
// which is counted and logged. All others are answered, and the limit is enforced.
func TestPanicsUnderLoad(t *testing.T) {
	const limit, callers, calls = 1000, 8, 300
	s := answer.NewTestService(t, fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]}", limit))
	core, logs := observer.New(zap.InfoLevel)
	srv := server.New(server.Options{
		GRPCAddr: "127.0.0.1:0", DrainTimeout: time.Minute,
		Limits: transport.Limits{
			MaxMessageBytes: 4 << 20, MaxConnections: 100, MaxStreams: 100, MaxHeaderBytes: 16 << 10,
			ConnectionTimeout: time.Minute, MaxConnectionIdle: time.Hour, KeepaliveTime: time.Hour, KeepaliveTimeout: time.Hour, KeepaliveMinTime: time.Hour,
		},
	}, s.Service, zap.New(core))
	if err := srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	addr := fmt.Sprint(logs.FilterMessage("listening").All()[0].ContextMap()["addr"])
	conn := func() *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var calling sync.WaitGroup
	var admitted, denied, internal atomic.Int64
	for range callers {
		client := rls.NewRateLimitServiceClient(conn())
		calling.Go(func() {
			for i := range calls {
				switch i % 20 {
				case 0:
					s.Break(i / 20 % 3)
				case 1:
					s.Restore()
				}
				reply, err := client.ShouldRateLimit(t.Context(), answer.SimpleRequest())
				switch {
				case status.Code(err) == codes.Internal:
					internal.Add(1)
				case err != nil:
					t.Errorf("a call gets %v", err)
				case reply.GetOverallCode() == rls.RateLimitResponse_OK:
					admitted.Add(1)
				default:
					denied.Add(1)
				}
			}
		})
	}
	calling.Wait()
	t.Logf("%d admitted, %d denied, %d INTERNAL", admitted.Load(), denied.Load(), internal.Load())
	// A request that panicked after it was charged used a hit.
	if got := admitted.Load(); got > limit || got+internal.Load() < limit {
		t.Errorf("%d calls were admitted, want %d less those that panicked", got, limit)
	}
	// The API reads the service each second and may panic because of the broken rules too.
	panics := int64(testutil.ToFloat64(s.Metrics().Panics))
	if panics < max(1, internal.Load()) {
		t.Errorf("%d panics are counted, want %d, the number of INTERNAL replies, or more", panics, internal.Load())
	}
	if got := logs.FilterMessage("panic in a request; more within ten seconds are only counted").Len(); got < 1 || int64(got) > 1+panics/10 {
		t.Errorf("%d of %d panics are logged, want one per ten seconds", got, panics)
	}
}
