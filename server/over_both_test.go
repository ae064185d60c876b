package server

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// transportGRPC is the other value of [Options].Transport.
const transportGRPC = "grpc-go"

// overBoth runs a test over each transport.
func overBoth(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range []string{transportGRPC, transportOwn} {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// overBothAtOnce is overBoth for tests that wait for most of their time: beside each other and beside
// other tests.
func overBothAtOnce(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{transportGRPC, transportOwn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

func TestWireAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, name string) {
		t.Helper()
		r := serve(t, service(t, answer.Settings{}, oneRule), Options{Transport: name})
		conn := r.dial(t)
		for range 3 {
			checkOK(t, conn)
		}
		health := grpc_health_v1.NewHealthClient(conn)
		reply, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: answer.ServiceName})
		if err != nil || reply.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("Check() = %v, %v, want SERVING", reply, err)
		}
		if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
			t.Errorf("Check(other) = %v, want NOT_FOUND", err)
		}
		client := rls.NewRateLimitServiceClient(conn)
		if _, err := client.ShouldRateLimit(t.Context(), simpleRequest(), grpc.UseCompressor(gzip.Name)); err != nil {
			t.Errorf("a compressed request: %v", err)
		}
		if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); status.Code(err) != codes.Unknown || status.Convert(err).Message() != "rate limit domain must not be empty" {
			t.Errorf("an empty request: %v, want UNKNOWN", err)
		}
	})
}
