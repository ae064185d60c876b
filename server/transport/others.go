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

// maxConversations is how many streams of a method may be open at once, on all connections, on which a
// client may send any number of messages. Of ours only reflection has such streams, for people who explore
// the service. Each can keep questions, and up to 64 KiB of answers that the client does not read.
const maxConversations = 16

// maxAllWatches is how many streams of any other method may be open at once, on all connections: only the
// server sends on them. Each has a goroutine.
const maxAllWatches = 1024

// Others is what is around the calls of services other than RateLimitService, over either transport. That
// one's handler counts by itself, and recovers from panics.
type Others struct {
	calls    *telemetry.Calls
	panics   *telemetry.Panics
	draining <-chan struct{}
	places   Places
}

// NewOthers returns what is around the calls that a transport carries.
func NewOthers(c *Config) *Others {
	return &Others{calls: c.Handler.Metrics.Calls, panics: c.Handler.Panics, draining: c.Draining}
}

// Unary is a [grpc.UnaryServerInterceptor]. It counts calls, and answers INTERNAL if a method panics.
func (o *Others) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	if m := o.calls.Method(path.Base(info.FullMethod)); m != nil {
		m.Requests.Inc()
		start := time.Now() //nolint:forbidigo // measures, decides nothing
		defer func() { m.Done(uint32(status.Code(err)), time.Since(start)) }()
	}
	defer o.Recover(&err)
	return handle(ctx, request)
}

// Begin counts a stream, which has no response time: a client keeps it open for as long as it likes. It
// returns an error if there is no place for the stream; otherwise End must be called at its end. A
// conversation is a stream on which a client may send any number of messages.
func (o *Others) Begin(method string, conversation bool) error {
	if m := o.calls.Method(path.Base(method)); m != nil {
		m.Requests.Inc()
	}
	most := maxAllWatches
	if conversation {
		most = maxConversations
	}
	return o.places.Take(method, most)
}

// End gives the place of a stream back.
func (o *Others) End(method string) { o.places.Leave(method) }

// Stream is a [grpc.StreamServerInterceptor] around streams that have begun. It answers INTERNAL if a method
// panics, and ends the stream when the server drains. A client can keep health's Watch and reflection open
// for any time, so a graceful stop would wait for them until its timeout. A handler ends after its stream.
func (o *Others) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer o.Recover(&err)
		err = handle(srv, stream)
	}()
	select {
	case err := <-done:
		return err
	case <-o.draining:
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}

// Recover is deferred by a call. grpc-go would end the process.
func (o *Others) Recover(err *error) {
	if p := recover(); p != nil {
		o.panics.Report(p)
		*err = status.Error(codes.Internal, "internal error")
	}
}

// Places are for the streams that may be open at once. Each method has its own, so that the clients of
// one service leave those of others theirs. The zero value has all places free.
type Places struct {
	mu    sync.Mutex
	taken map[string]int // by method
}

// Take takes one of a method's places, of which there are most. Leave gives it back.
func (p *Places) Take(method string, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[method] >= most {
		return status.Errorf(codes.ResourceExhausted, "%s is in use: at most %d streams at once", method, most)
	}
	if p.taken == nil {
		p.taken = make(map[string]int)
	}
	p.taken[method]++
	return nil
}

// Leave gives a place back.
func (p *Places) Leave(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[method]--
}
