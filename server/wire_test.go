package server

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// transportGRPC is the other value of [Options].Transport.
const transportGRPC = "grpc-go"

// overBoth runs a test over each transport.
func overBoth(t *testing.T, test func(t *testing.T, transport string)) {
	t.Helper()
	for _, transport := range []string{transportGRPC, transportOwn} {
		t.Run(transport, func(t *testing.T) { test(t, transport) })
	}
}

// overBothAtOnce is overBoth for tests that wait for most of their time: beside each other and beside
// other tests.
func overBothAtOnce(t *testing.T, test func(t *testing.T, transport string)) {
	t.Helper()
	t.Parallel()
	for _, transport := range []string{transportGRPC, transportOwn} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			test(t, transport)
		})
	}
}

func TestWireAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, transport string) {
		t.Helper()
		r := serve(t, service(t, Settings{}, oneRule), Options{Transport: transport})
		conn := r.dial(t)
		for range 3 {
			checkOK(t, conn)
		}
		health := grpc_health_v1.NewHealthClient(conn)
		reply, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: ServiceName})
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
		if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); status.Code(err) != codes.Unknown || status.Convert(err).Message() != errEmptyDomain.Error() {
			t.Errorf("an empty request: %v, want %v", err, errEmptyDomain)
		}
	})
}
