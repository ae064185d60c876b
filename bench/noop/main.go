// Command noop is a rate-limit service that decides nothing: grpc-go as it comes,
// requests decoded by protobuf's generated code, OK for every descriptor. What it
// costs is what a Go service pays before its own work begins.
//
// Its statuses have a code and nothing else. A real reply is longer, which is to
// the no-op's advantage.
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

// ShouldRateLimit answers OK.
func (service) ShouldRateLimit(_ context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	statuses := make([]*rls.RateLimitResponse_DescriptorStatus, len(request.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	}
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: statuses}, nil
}
