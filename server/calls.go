package server

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// countUnary counts calls of services other than RateLimitService. That one's handler ignores
// interceptors and counts by itself.
func countUnary(calls *telemetry.Calls) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		m := calls.Method(path.Base(info.FullMethod))
		if m == nil {
			return handle(ctx, req)
		}
		m.Requests.Inc()
		start := time.Now() //nolint:forbidigo // measures, decides nothing
		reply, err := handle(ctx, req)
		m.Done(uint32(status.Code(err)), time.Since(start))
		return reply, err
	}
}

// countStreams counts the streams of these services when they begin.
func countStreams(calls *telemetry.Calls) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		countStream(calls, info.FullMethod)
		return handle(srv, stream)
	}
}

// countStream counts a stream. It has no response time: a client keeps it open for as long as it likes.
func countStream(calls *telemetry.Calls, method string) {
	if m := calls.Method(path.Base(method)); m != nil {
		m.Requests.Inc()
	}
}
