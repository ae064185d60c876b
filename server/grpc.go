package server

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
)

// serviceName is the gRPC service's full name.
const serviceName = "envoy.service.ratelimit.v3.RateLimitService"

// exchange carries one request's bytes from the codec to the handler, and its reply's bytes back.
// So neither becomes a protobuf message.
type exchange struct {
	call    Call
	trace   *callTrace // of the own transport; nil without tracing
	asked   asked      // of the own transport, while a store decides
	request []byte
	reply   []byte
	large   bool // it answered a request of more than maxKept
}

// maxKept is the largest request, in bytes, whose exchange is kept for later requests. Without it,
// a few large requests could in time make every pooled exchange large.
const maxKept = 8 << 10

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// codec passes exchanges through as bytes and leaves all else, such as health
// and reflection, to protobuf's codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	x, ok := v.(*exchange)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	// The transport may hold the bytes until they are written. x is used again before that,
	// so the bytes are copied.
	out := mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), x.reply...))}
	x.release()
	return out, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	x, ok := v.(*exchange)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if len(data) == 1 {
		if own, ok := data[0].(mem.SliceBuffer); ok && len(own) > maxKept {
			x.request = own // a large message was decompressed to it; nobody else has it
			return nil
		}
	}
	x.request = x.request[:0]
	for _, part := range data {
		x.request = append(x.request, part.ReadOnlyData()...)
	}
	return nil
}

func (x *exchange) release() {
	if !x.large && cap(x.request) <= maxKept && !x.call.undecided {
		exchanges.Put(x)
	}
}

// rateLimitServer is what the handler needs.
type rateLimitServer interface {
	shouldRateLimit(ctx context.Context, x *exchange) error
}

// serviceDesc describes RateLimitService in place of generated code, which would decode into
// protobuf messages.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*rateLimitServer)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			x, _ := exchanges.Get().(*exchange)
			if err := decode(x); err != nil {
				return nil, err
			}
			server, ok := srv.(rateLimitServer)
			if !ok {
				return nil, status.Errorf(codes.Internal, "%T does not answer rate-limit requests", srv)
			}
			if err := server.shouldRateLimit(ctx, x); err != nil {
				x.release()
				return nil, err
			}
			return x, nil
		},
	}},
	Metadata: "envoy/service/ratelimit/v3/rls.proto",
}

// handler answers over gRPC and counts.
type handler struct {
	service *Service
	logger  *zap.Logger
	rare    *zap.Logger // see rareLogger
	panics  *Panics
	precise bool
	tell    tell
	clock   *clock.Clock
}

func newHandler(s *Service, logger *zap.Logger, precise bool) *handler {
	c := s.settings.Clock
	if c == nil {
		c = clock.New()
	}
	return &handler{service: s, logger: logger, rare: rareLogger(logger), panics: NewPanics(s.metrics.Panics, logger), precise: precise, clock: c}
}

// margin is the part of a call's deadline that a held reply needs to get back in time.
const margin = time.Millisecond

// shouldRateLimit answers x.request in x.reply. It returns once the reply was held for as long as
// the rules say.
func (h *handler) shouldRateLimit(ctx context.Context, x *exchange) error {
	deadline := never
	if d, ok := ctx.Deadline(); ok {
		deadline = h.clock.ElapsedAt(d)
	}
	if h.service.settings.Allow != nil {
		x.call.client = clientOf(ctx)
	}
	reply, delay, took, err := h.decide(ctx, h.clock.Elapsed(), deadline, &x.call, x.request)
	x.reply = reply
	if delay > 0 {
		err = h.hold(ctx, x, delay)
	}
	h.done(err, took)
	return err
}

// never is the deadline of a call without one.
const never = time.Duration(math.MaxInt64)

// decide answers a request whose deadline is a time of h.clock. The reply is a view of c's memory,
// and is to be sent after delay. The error has a gRPC status. The caller calls done with the error
// and took once the call has ended.
func (h *handler) decide(ctx context.Context, start, deadline time.Duration, c *Call, request []byte) (reply []byte, delay, took time.Duration, err error) {
	now := h.begin(start)
	took = -1 // until it is known
	defer func() {
		if took < 0 && counting {
			took = h.clock.Elapsed() - start
		}
		if p := recover(); p != nil {
			reply, delay, err = nil, 0, h.recovered(p, c)
		}
	}()
	reply, delay, err = h.service.Answer(now, budget(deadline, start), c, request)
	if counting {
		took = h.clock.Elapsed() - start
	}
	return reply, delay, took, h.answered(ctx, c, delay, err)
}

// beginCall is [Service.Begin]. The error is for finishCall.
func (h *handler) beginCall(now limiter.Time, budget time.Duration, c *Call, request []byte, w limiter.Waiter) (done bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			done, err = true, h.recovered(p, c)
		}
	}()
	return h.service.Begin(now, budget, c, request, w)
}

// finishCall is [Service.Finish], or the end of a request without a decision. Its results are those
// of decide.
func (h *handler) finishCall(ctx context.Context, c *Call, start time.Duration, why error) (reply []byte, delay, took time.Duration, err error) {
	took = h.clock.Elapsed() - start
	defer func() {
		if p := recover(); p != nil {
			reply, delay, err = nil, 0, h.recovered(p, c)
		}
	}()
	if errors.Is(why, errPanicked) {
		return nil, 0, took, why
	}
	if why == nil {
		reply, delay = h.service.Finish(c)
	}
	return reply, delay, took, h.answered(ctx, c, delay, why)
}

// begin counts a request that begins now, at start, and returns the time for its decisions.
func (h *handler) begin(start time.Duration) limiter.Time {
	if counting {
		h.service.metrics.Calls.ShouldRateLimit.Requests.Inc()
	}
	return h.clock.At(start)
}

// budget returns how long the reply of a request may be held that began at start.
func budget(deadline, start time.Duration) time.Duration {
	if deadline == never {
		return never
	}
	return deadline - start - margin
}

// recovered is what becomes of a panic: a bug of ours must cost one reply, not the process.
func (h *handler) recovered(p any, c *Call) error {
	h.panics.Caught(p)
	if !c.undecided { // else the store may still have it
		*c = Call{} // its state is unknown
	}
	return errPanicked
}

// errPanicked is the answer to a request in which something panicked.
var errPanicked = status.Error(codes.Internal, "internal error")

// answered tells of an answer, or of the error of [Service.Answer] in its place. It returns the
// error with a gRPC status.
func (h *handler) answered(ctx context.Context, c *Call, delay time.Duration, err error) error {
	if h.tell != nil {
		h.tell(ctx, c, delay, err)
	}
	if err == nil {
		return nil
	}
	h.reject(err)
	s := status.New(code(err, h.precise), err.Error())
	if _, ofStore := errors.AsType[*storeError](err); ofStore {
		return &statusError{s}
	}
	return s.Err()
}

// statusError is the gRPC status of a *storeError. It is counted apart, as in envoyproxy/ratelimit.
type statusError struct{ status *status.Status }

func (e *statusError) Error() string              { return e.status.String() }
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// done counts a request that was answered with err, which is nil or has a gRPC status.
func (h *handler) done(err error, took time.Duration) {
	m := h.service.metrics
	switch _, ofStore := errors.AsType[*statusError](err); {
	case ofStore:
		m.StoreErrors.Inc()
	case err != nil:
		m.ServiceErrors.Inc()
	}
	if counting {
		m.Calls.ShouldRateLimit.Done(uint32(status.Code(err)), took)
	}
}

// reject counts and logs a request that was answered with an error, if its reason has a metric.
func (h *handler) reject(err error) {
	rejected := &h.service.metrics.Rejected
	if e, ok := errors.AsType[*boundError](err); ok {
		e.bound.counter(rejected).Inc()
		h.rare.Warn("request rejected: it is beyond a bound; more within ten seconds are only counted", zap.Error(e))
	}
	if e, ok := errors.AsType[*deniedError](err); ok {
		rejected.NotAllowed.Inc()
		names := "none"
		if e.client != nil {
			names = e.client.names
		}
		h.rare.Warn("request denied: --grpc-allow does not grant the domain to the client's certificate; more within ten seconds are only counted",
			zap.String("certificate", names), zap.String("domain", e.domain))
	}
}

// hold waits for delay. If the client goes away meanwhile, its turn is cancelled.
func (h *handler) hold(ctx context.Context, x *exchange, delay time.Duration) error {
	m := h.service.metrics
	m.WaitedCalls.Inc()
	m.WaitingCalls.Inc()
	defer m.WaitingCalls.Dec()
	if cap(x.request) > maxKept {
		x.request = nil // it has been answered
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		now, _ := h.clock.Now() // a later moment than the request's
		h.service.Cancel(now, &x.call)
		m.CancelledWaits.Inc()
		return status.FromContextError(ctx.Err()).Err()
	}
}

// code returns the gRPC status code of an error of [Service.Answer]. Errors that
// envoyproxy/ratelimit has too are UNKNOWN as there, unless precise is set.
func code(err error, precise bool) codes.Code {
	if _, ok := errors.AsType[*boundError](err); ok {
		return codes.ResourceExhausted
	}
	if _, ok := errors.AsType[*deniedError](err); ok {
		return codes.PermissionDenied
	}
	if _, ok := errors.AsType[*storeError](err); ok && precise {
		return codes.Unavailable
	}
	switch {
	case errors.Is(err, errMalformed):
		if precise {
			return codes.InvalidArgument
		}
		return codes.Internal // as grpc-go answers what it cannot decode
	case !precise:
		return codes.Unknown
	case errors.Is(err, errEmptyDomain), errors.Is(err, errNoDescriptors):
		return codes.InvalidArgument
	case errors.Is(err, errNoRules):
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}

// maxConversations is how many streams of a method may be open at once, on all connections, on which a
// client may send any number of messages. Of ours only reflection has such streams, for people who explore
// the service. Each can keep questions, and up to 64 KiB of answers that the client does not read.
const maxConversations = 16

// maxAllWatches is how many streams of any other method may be open at once, on all connections: only the
// server sends on them. Each has a goroutine.
const maxAllWatches = 1024

// mostOfOther is how many bytes a message to another service than RateLimitService may have. Health and
// reflection are asked with names. A health check that watches keeps its name for as long as it likes.
const mostOfOther = 4 << 10

// messageOfOther is the answer to a message that has more.
func messageOfOther(method string, size, most int) error {
	return status.Errorf(codes.ResourceExhausted, "the message has %d bytes: %s takes %d", size, method, most)
}

// boundUnary bounds the messages of other services' calls, over grpc-go.
func boundUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := checkMessage(info.FullMethod, request); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// boundStreams does the same for streams.
func boundStreams(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, boundStream{stream, info.FullMethod})
}

type boundStream struct {
	grpc.ServerStream
	method string
}

// RecvMsg implements [grpc.ServerStream].
func (s boundStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return checkMessage(s.method, m)
}

func checkMessage(method string, m any) error {
	if message, ok := m.(proto.Message); ok {
		if size := proto.Size(message); size > mostOfOther {
			return messageOfOther(method, size, mostOfOther)
		}
	}
	return nil
}

// places are for the streams that may be open at once. Each method has its own, so that the clients of
// one service leave those of others theirs. The zero value has all places free.
type places struct {
	mu    sync.Mutex
	taken map[string]int // by method
}

// take takes one of a method's places, which leave gives back.
func (p *places) take(method string, most int) error {
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

func (p *places) leave(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[method]--
}

// mostStreams returns how many streams of a method may be open at once.
func mostStreams(conversation bool) int {
	if conversation {
		return maxConversations
	}
	return maxAllWatches
}

// bound rejects streams for which there is no place.
func (p *places) bound(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := p.take(info.FullMethod, mostStreams(info.IsClientStream)); err != nil {
		return err
	}
	defer p.leave(info.FullMethod)
	return handle(srv, stream)
}

// endWith ends the streams of other services, health's Watch and reflection, when draining is
// closed. A client can keep them open for any time, so a graceful stop would wait for them until
// its timeout. Their handlers end after the stream.
func endWith(draining <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		done := make(chan error, 1)
		go func() { done <- handle(srv, stream) }()
		select {
		case err := <-done:
			return err
		case <-draining:
			return status.Error(codes.Unavailable, "the server is shutting down")
		}
	}
}
