package server

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestConnectionsEndAtTheirAge delays a reply beyond the maximum age of its connection. The server
// sends GOAWAY, the call ends within the grace period or fails, and the next call uses a new
// connection.
func TestConnectionsEndAtTheirAge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		delay int // of the second call, in seconds: it is delayed until these have passed since the first
		grace time.Duration
		want  codes.Code
	}{
		{"unlimited grace", 3, 0, codes.OK},
		{"sufficient grace", 3, time.Hour, codes.OK},
		{"insufficient grace", 60, 50 * time.Millisecond, codes.Unavailable}, // on a busy machine, too
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			delaying := fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: second, unit_multiplier: %d, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s}}]}", tt.delay)
			r := serve(t, service(t, answer.Settings{}, delaying), Options{Limits: transport.Limits{
				MaxConnectionAge: 200 * time.Millisecond, MaxConnectionAgeGrace: tt.grace,
			}})
			var dials atomic.Int64
			conn := r.dial(t, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}))
			checkOK(t, conn)
			called := make(chan error, 1)
			go func() {
				_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), simpleRequest())
				called <- err
			}()
			if !conn.WaitForStateChange(t.Context(), connectivity.Ready) {
				t.Error("the client never receives GOAWAY")
			}
			if err := <-called; status.Code(err) != tt.want {
				t.Errorf("the call in flight gets %v, want %v", err, tt.want)
			}
			next := simpleRequest()
			next.Descriptors[0].Entries[0].Value = "not delayed"
			if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), next); err != nil {
				t.Errorf("the next call gets %v, want a reply", err)
			}
			if n := dials.Load(); n < 2 {
				t.Errorf("%d connections, want a new one after the first", n)
			}
		})
	}
}
