package answer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/leases"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Handler answers requests for whatever carries them: it gives errors their gRPC statuses, recovers from
// panics, counts and logs. Its methods may be called concurrently.
type Handler struct {
	Service *Service
	Metrics *telemetry.Metrics
	Panics  *telemetry.Panics
	Logger  *zap.Logger
	// Rare is the logger for what clients cause; see [telemetry.Rare].
	Rare  *zap.Logger
	Clock *clock.Clock

	precise  bool
	describe describe
}

// NewHandler returns a handler. Precise errors have codes where envoyproxy/ratelimit has UNKNOWN. Decisions
// are told to the spans of tracing, unless it is nil, and to the logger at the level debug.
func NewHandler(s *Service, logger *zap.Logger, tracing *telemetry.Tracing, precise bool) *Handler {
	c := s.settings.Clock
	if c == nil {
		c = clock.New()
	}
	s.panics = telemetry.NewPanics(s.metrics.Panics, logger)
	return &Handler{
		Service: s, Metrics: s.metrics, Panics: s.panics,
		Logger: logger, Rare: telemetry.Rare(logger), Clock: c,
		precise: precise, describe: newDescribe(tracing, logger),
	}
}

// margin is the part of a call's deadline that a held reply needs to get back in time.
const margin = time.Millisecond

// NoDeadline is the deadline of a call without one.
const NoDeadline = time.Duration(math.MaxInt64)

// Answer answers x.Request. It returns once the reply was held for as long as the rules say. The error has a
// gRPC status.
func (h *Handler) Answer(ctx context.Context, x *Exchange) error {
	start, deadline := h.Clock.Elapsed(), NoDeadline
	if d, ok := ctx.Deadline(); ok {
		deadline = h.Clock.ElapsedAt(d)
	}
	err := x.await(h.Begin(start, deadline, x, x.Request, x.waiting()))
	delay, took, err := h.Finish(ctx, x, start, err)
	if delay > 0 {
		err = h.hold(ctx, x, delay)
	}
	h.Done(err, took)
	return err
}

// Begin counts a request that begins at start, and does the part of its answer up to the decision, as
// [Service.Begin] does. Start and deadline are times of h.Clock. The error is for Finish.
func (h *Handler) Begin(start, deadline time.Duration, x *Exchange, request []byte, w limiter.Waiter) (done bool, err error) {
	defer h.caught(x, &err)
	if counting {
		h.Metrics.Calls.ShouldRateLimit.Requests.Inc()
	}
	budget := NoDeadline // how long the reply may be held
	if deadline != NoDeadline && !x.Late {
		budget = deadline - start - margin
	}
	return h.Service.Begin(h.Clock.At(start), budget, x, request, w)
}

// Finish is the rest of the answer, from the decision on, or the end of a request that failed. The error
// that it returns has a gRPC status; without one, x.Reply is to be sent after delay. The caller calls
// Done with the error and took once the call has ended.
func (h *Handler) Finish(ctx context.Context, x *Exchange, start time.Duration, failed error) (delay, took time.Duration, err error) {
	if counting {
		took = h.Clock.Elapsed() - start
	}
	if failed == errPanicked { //nolint:errorlint // it is Begin's own
		return 0, took, failed
	}
	defer h.caught(x, &err)
	x.undecided = false
	var hold time.Duration // the result is 0 after a panic
	if failed == nil {
		hold = h.Service.Finish(x)
	}
	if failed != nil || h.describe != nil {
		failed = h.answered(ctx, x, hold, failed)
	}
	return hold, took, failed
}

// caught is deferred by what may panic: a bug of ours must cost one reply, not the process.
func (h *Handler) caught(x *Exchange, err *error) {
	if p := recover(); p != nil {
		h.Panics.Report(p)
		if !x.undecided { // else the store may still have it
			*x = Exchange{Request: x.Request, Client: x.Client, Connection: x.Connection, Stream: x.Stream} // the state of the rest is unknown
		}
		*err = errPanicked
	}
}

// errPanicked is the answer to a request in which something panicked.
var errPanicked = status.Error(codes.Internal, "internal error")

// answered tells of an answer, or of the error of [Service.Answer] in its place. It returns the
// error with a gRPC status.
func (h *Handler) answered(ctx context.Context, x *Exchange, delay time.Duration, err error) error {
	if h.describe != nil {
		h.describe(ctx, x, delay, err)
	}
	if err == nil {
		return nil
	}
	h.reject(err, peerOf(ctx, x.Connection))
	s := status.New(statusCode(err, h.precise), err.Error())
	if _, ofStore := errors.AsType[*storeError](err); ofStore {
		return &statusError{s}
	}
	return s.Err()
}

// statusError is the gRPC status of a *storeError. It is counted apart, as in envoyproxy/ratelimit.
type statusError struct{ status *status.Status }

func (e *statusError) Error() string              { return e.status.String() }
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// Done counts a request that was answered with err, which is nil or has a gRPC status.
func (h *Handler) Done(err error, took time.Duration) {
	m := h.Metrics
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

// reject counts and logs a request of a peer that was answered with an error, if its reason has a metric.
func (h *Handler) reject(err error, peer fmt.Stringer) {
	rejected, clients := &h.Metrics.Rejected, &h.Metrics.ClientErrors
	beyond, isBeyond := errors.AsType[*boundError](err)
	denied, isDenied := errors.AsType[*access.DeniedError](err)
	switch {
	case isBeyond:
		beyond.bound.counter(rejected).Inc()
		clients.BeyondBounds.Report(h.Rare, peer, zap.Error(beyond))
	case isDenied:
		rejected.NotAllowed.Inc()
		clients.NotAllowed.Report(h.Rare, peer, denied.Fields()...)
	case errors.Is(err, errEmptyDomain):
		rejected.NoDomain.Inc()
		clients.WithoutDomain.Report(h.Rare, peer)
	case errors.Is(err, errNoDescriptors):
		rejected.NoDescriptors.Inc()
		clients.WithoutDescriptors.Report(h.Rare, peer)
	case errors.Is(err, errMalformed):
		h.Malformed(peer)
	}
}

// Malformed counts and logs a request that does not decode.
func (h *Handler) Malformed(peer fmt.Stringer) {
	h.Metrics.Rejected.Malformed.Inc()
	h.Metrics.ClientErrors.Malformed.Report(h.Rare, peer)
}

// peerOf returns the address of the client of a request, or nil.
func peerOf(ctx context.Context, c *leases.Connection) fmt.Stringer {
	if c != nil && c.Addr != nil {
		return c.Addr
	}
	if p, ok := grpcpeer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// hold waits for delay. If the client goes away meanwhile, its turn is cancelled.
func (h *Handler) hold(ctx context.Context, x *Exchange, delay time.Duration) error {
	m := h.Metrics
	m.DelayedResponses.Inc()
	m.PendingDelays.Inc()
	defer m.PendingDelays.Dec()
	if cap(x.Request) > MostKept {
		x.Request = nil // it has been answered
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		h.Cancel(x)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Cancel gives back the turn of a reply that is held, as its client went away.
func (h *Handler) Cancel(x *Exchange) {
	now, _ := h.Clock.Now() // a later moment than the request's
	h.Service.Cancel(now, x)
	h.Metrics.CancelledDelays.Inc()
}

// TooLarge rejects and counts a request of the given size in bytes, which the transport has not read to its end.
func (h *Handler) TooLarge(size, most int, from *leases.Connection) error {
	err := &boundError{messageTooLarge, most, size}
	failed := status.Error(statusCode(err, h.precise), err.Error())
	h.Metrics.Calls.ShouldRateLimit.Requests.Inc()
	h.reject(err, peerOf(context.Background(), from))
	h.Done(failed, 0)
	return failed
}

// statusCode returns the gRPC status code of an error of [Service.Answer]. Errors that
// envoyproxy/ratelimit has too are UNKNOWN as there, unless precise is set.
func statusCode(err error, precise bool) codes.Code {
	if errors.Is(err, errLate) {
		return codes.DeadlineExceeded
	}
	if _, ok := errors.AsType[*boundError](err); ok {
		return codes.ResourceExhausted
	}
	if _, ok := errors.AsType[*access.DeniedError](err); ok {
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
