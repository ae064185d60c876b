package transport

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxClientStreams limits, per method and for all connections, the open streams on which a client
// may send any number of messages. Of our services only reflection, a tool for people, has such
// streams. Each may buffer requests, and up to 64 KiB of responses that the client does not read.
const maxClientStreams = 16

// maxServerStreams limits, per method and for all connections, the open streams on which only the
// server sends. Each has a goroutine.
const maxServerStreams = 1024

// Interceptors surround the calls of services other than RateLimitService, whose handler counts its
// calls and recovers from panics itself.
type Interceptors struct {
	calls    *telemetry.Calls
	panics   *telemetry.Panics
	draining <-chan struct{}
	limiter  StreamLimiter
}

// NewInterceptors returns the interceptors of a transport.
func NewInterceptors(c *Config) *Interceptors {
	return &Interceptors{calls: c.Handler.Metrics.Calls, panics: c.Handler.Panics, draining: c.Draining}
}

// Unary is a [grpc.UnaryServerInterceptor]. It counts calls, and returns INTERNAL if the method
// panics.
func (i *Interceptors) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	if m := i.calls.Method(path.Base(info.FullMethod)); m != nil {
		m.Requests.Inc()
		start := time.Now() //nolint:forbidigo // measures, decides nothing
		defer func() { m.Done(uint32(status.Code(err)), time.Since(start)) }()
	}
	defer i.Recover(&err)
	return handle(ctx, request)
}

// BeginStream counts a stream. Its duration is not measured, because it depends on the client. If
// too many streams of the method are open, it returns an error; otherwise EndStream must be called.
// clientStream is true if the client may send any number of messages.
func (i *Interceptors) BeginStream(method string, clientStream bool) error {
	if m := i.calls.Method(path.Base(method)); m != nil {
		m.Requests.Inc()
	}
	limit := maxServerStreams
	if clientStream {
		limit = maxClientStreams
	}
	return i.limiter.Acquire(method, limit)
}

// EndStream must be called when a stream ends.
func (i *Interceptors) EndStream(method string) { i.limiter.Release(method) }

// Stream is a [grpc.StreamServerInterceptor] for streams on which BeginStream was called. It
// returns INTERNAL if the method panics, and UNAVAILABLE when the server drains: clients keep
// health's Watch and reflection open as long as they like, and a graceful stop would otherwise wait
// for them. The handler may return later.
func (i *Interceptors) Stream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer i.Recover(&err)
		err = handle(srv, stream)
	}()
	select {
	case err := <-done:
		return err
	case <-i.draining:
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}

// Recover must be deferred by a call. Without it, a panic would exit the process.
func (i *Interceptors) Recover(err *error) {
	if p := recover(); p != nil {
		i.panics.Report(p)
		*err = status.Error(codes.Internal, "internal error")
	}
}

// StreamLimiter limits the number of open streams. Each method has its own limit, so that the
// clients of one service do not affect those of others.
type StreamLimiter struct {
	mu   sync.Mutex
	open map[string]int // by method
}

// Acquire counts a stream of a method, or returns an error if limit streams are open.
func (l *StreamLimiter) Acquire(method string, limit int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[method] >= limit {
		return status.Errorf(codes.ResourceExhausted, "too many open streams of %s: at most %d are allowed", method,
			limit)
	}
	if l.open == nil {
		l.open = make(map[string]int)
	}
	l.open[method]++
	return nil
}

// Release must be called when a stream ends.
func (l *StreamLimiter) Release(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[method]--
}
