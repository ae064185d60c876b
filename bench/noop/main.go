// Command noop is a rate-limit service that makes no decision: grpc-go with default options,
// requests decoded by protobuf's generated code, and OK for every descriptor. Its cost is that of a
// Go service before its own work begins.
//
// Its statuses only contain a code. Real replies are longer, which favours noop.
package main

import (
	"context"
	"net"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/bench/program"
)

func main() {
	program.Serve("noop", func(ctx context.Context, listener net.Listener) error {
		s := grpc.NewServer()
		rls.RegisterRateLimitServiceServer(s, service{})
		defer context.AfterFunc(ctx, s.Stop)()
		return s.Serve(listener)
	})
}

type service struct {
	rls.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit returns OK.
func (service) ShouldRateLimit(_ context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	statuses := make([]*rls.RateLimitResponse_DescriptorStatus, len(request.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	}
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: statuses}, nil
}
