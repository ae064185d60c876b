package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// LogPanic logs the place of a bug of ours, of which a deferred function calls it. The value of the panic may have parts of the request,
// so above debug only its type is logged. Go's own errors, such as an index out of range, have only
// numbers and types, and are logged in full.
func LogPanic(logger *zap.Logger, thrown any) {
	what := zap.Skip()
	if err, ok := thrown.(error); ok {
		if own, ok := errors.AsType[runtime.Error](err); ok {
			what = zap.String("error", own.Error())
		}
	}
	logger.Error("panic in a request", zap.String("type", fmt.Sprintf("%T", thrown)), what, zap.ByteString("stack", debug.Stack()))
	logger.Debug("panic in a request: what was thrown", zap.Any("panic", thrown))
}

// recoverUnary answers INTERNAL if a method panics. grpc-go would end the process.
func recoverUnary(metrics *telemetry.Metrics, logger *zap.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		defer recoverCall(metrics, logger, &err)
		return handle(ctx, request)
	}
}

// recoverStreams does the same for streams.
func recoverStreams(metrics *telemetry.Metrics, logger *zap.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
		defer recoverCall(metrics, logger, &err)
		return handle(srv, stream)
	}
}

// recoverCall is deferred by a call of another service than RateLimitService.
func recoverCall(metrics *telemetry.Metrics, logger *zap.Logger, err *error) {
	if p := recover(); p != nil {
		metrics.Panics.Inc()
		LogPanic(logger, p)
		*err = status.Error(codes.Internal, "internal error")
	}
}

// recovering answers 500 if h panics. Without it, net/http would log the value of the panic.
func recovering(h http.Handler, metrics *telemetry.Metrics, logger *zap.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p) //nolint:forbidigo // as above
			default:
				metrics.Panics.Inc()
				LogPanic(logger, p)
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}
