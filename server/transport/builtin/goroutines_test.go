package builtin

import (
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// TestRejectedStreamsHaveNoGoroutine opens one stream more than allowed.
func TestRejectedStreamsHaveNoGoroutine(t *testing.T) {
	w := New(transport.Config{
		Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false),
		Register: func(own reflection.GRPCServer, _ grpc.ServiceRegistrar) {
			own.RegisterService(&grpc.ServiceDesc{ServiceName: "s", Streams: []grpc.StreamDesc{{StreamName: "Talk", ClientStreams: true}}}, nil)
		},
	})
	for w.bridge.interceptors.BeginStream("/s/Talk", true) == nil { // until the limit is reached
	}
	calls := (*calls)(&connection{shared: &w.shared})
	if begun, s := calls.startBridged(&h2.Call{Method: methodShouldRateLimit + 1}, false); begun != nil || codes.Code(s.Code) != codes.ResourceExhausted || calls.bridgedCalls.Load() != 0 {
		t.Errorf("got %v with %d goroutines, want RESOURCE_EXHAUSTED and none", s, calls.bridgedCalls.Load())
	}
}
