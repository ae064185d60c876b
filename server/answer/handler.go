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

// Handler answers the requests of all transports. It converts errors to gRPC statuses, recovers
// from panics, counts and logs. Its methods may be called concurrently.
type Handler struct {
	Service *Service
	Metrics *telemetry.Metrics
	Panics  *telemetry.Panics
	Logger  *zap.Logger
	// Rare is the logger for errors of clients; see [telemetry.Rare].
	Rare  *zap.Logger
	Clock *clock.Clock

	precise  bool
	describe describeFunc
}

// NewHandler returns a handler. If precise is set, errors have specific codes where
// envoyproxy/ratelimit returns UNKNOWN. Decisions are added to spans, unless tracing is nil, and
// logged at level debug.
func NewHandler(s *Service, logger *zap.Logger, tracing *telemetry.Tracing, precise bool) *Handler {
	c := s.settings.Clock
	if c == nil {
		c = clock.New()
	}
	s.notices.logger = logger
	s.panics = telemetry.NewPanics(s.metrics.Panics, logger)
	return &Handler{
		Service: s, Metrics: s.metrics, Panics: s.panics,
		Logger: logger, Rare: telemetry.Rare(logger), Clock: c,
		precise: precise, describe: newDescriber(tracing, logger),
	}
}

// deadlineMargin is the time before a call's deadline at which a delayed reply must be sent to
// arrive in time.
const deadlineMargin = time.Millisecond

// NoDeadline stands for the deadline of a call that has none.
const NoDeadline = time.Duration(math.MaxInt64)

// Answer answers x.Request and returns after the delay that the rules require. The error has a gRPC
// status. Each function that waits, for a store or the delay, is passed to wait, which must call it;
// if wait is nil, it is called directly.
func (h *Handler) Answer(ctx context.Context, x *Exchange, wait func(func())) error {
	start := h.Clock.Elapsed()
	deadline := NoDeadline
	if d, ok := ctx.Deadline(); ok {
		deadline = h.Clock.ElapsedAt(d)
	}
	done, err := h.Begin(start, deadline, x, x.Request, x.waiter())
	if !done && err == nil {
		err = waitFor(wait, func() error { return x.await(false, nil) })
	}
	delay, took, err := h.Finish(ctx, x, start, err)
	if delay > 0 {
		err = waitFor(wait, func() error { return h.delayReply(ctx, x, delay) })
	}
	h.Done(err, took)
	return err
}

// waitFor calls f, by wait unless it is nil.
func waitFor(wait func(func()), f func() error) (err error) {
	if wait == nil {
		return f()
	}
	wait(func() { err = f() })
	return err
}

// Begin counts a request and calls [Service.Begin]. Start and deadline are times of h.Clock. The
// caller passes the error to Finish.
func (h *Handler) Begin(
	start, deadline time.Duration, x *Exchange, request []byte, w limiter.Waiter,
) (done bool, err error) {
	defer h.recoverPanic(x, &err)
	h.Metrics.Calls.ShouldRateLimit.Requests.Inc()
	budget := NoDeadline // longest time that the reply may be delayed
	if deadline != NoDeadline && !x.DeadlinePassed {
		budget = deadline - start - deadlineMargin
	}
	return h.Service.Begin(h.Clock.At(start), budget, x, request, w)
}

// Finish completes a request after its decision. failed is the error of Begin or of the decision.
// The returned error has a gRPC status; if it is nil, the caller sends x.Reply after delay. When
// the call ends, the caller passes the error and took to Done.
func (h *Handler) Finish(
	ctx context.Context, x *Exchange, start time.Duration, failed error,
) (delay, took time.Duration, err error) {
	took = h.Clock.Elapsed() - start
	if failed == errPanicked { //nolint:errorlint // Begin returns it unwrapped
		return 0, took, failed
	}
	defer h.recoverPanic(x, &err)
	x.undecided = false
	var wait time.Duration // not the named result, which must be 0 after a panic
	if failed == nil {
		wait = h.Service.Finish(x)
	}
	if failed != nil || h.describe != nil {
		failed = h.report(ctx, x, wait, failed)
	}
	return wait, took, failed
}

// recoverPanic is deferred by functions that may panic: a bug must cost one reply, not the process.
func (h *Handler) recoverPanic(x *Exchange, err *error) {
	if p := recover(); p != nil {
		h.Panics.Report(p)
		if !x.undecided { // otherwise the store may still be using it
			x.discard()
		}
		*err = errPanicked
	}
}

// discard resets the fields that may be inconsistent after a panic. It is not inlined, because an
// Exchange on the stack of each deferred recoverPanic would double the stacks of idle connections.
//
//go:noinline
func (x *Exchange) discard() {
	*x = Exchange{Request: x.Request, Client: x.Client, Connection: x.Connection, Stream: x.Stream}
}

// errPanicked is the error of a request whose handling panicked.
var errPanicked = status.Error(codes.Internal, "internal error")

// report describes an answer or error in traces and logs, and counts errors of clients. It returns
// the error with a gRPC status.
func (h *Handler) report(ctx context.Context, x *Exchange, delay time.Duration, err error) error {
	if h.describe != nil {
		h.describe(ctx, x, delay, err)
	}
	if err == nil {
		return nil
	}
	h.countRejected(err, peerOf(ctx, x.Connection))
	s := status.New(statusCode(err, h.precise), err.Error())
	if _, ofStore := errors.AsType[*storeError](err); ofStore {
		return &storeStatusError{s}
	}
	return s.Err()
}

// storeStatusError is the gRPC status of a *storeError, which has a metric of its own as in
// envoyproxy/ratelimit.
type storeStatusError struct{ status *status.Status }

func (e *storeStatusError) Error() string              { return e.status.String() }
func (e *storeStatusError) GRPCStatus() *status.Status { return e.status }

// Done counts a request that was answered with err: nil or an error with a gRPC status.
func (h *Handler) Done(err error, took time.Duration) {
	m := h.Metrics
	switch _, ofStore := errors.AsType[*storeStatusError](err); {
	case ofStore:
		m.StoreErrors.Inc()
	case err != nil:
		m.ServiceErrors.Inc()
	}
	m.Calls.ShouldRateLimit.Done(uint32(status.Code(err)), took)
}

// countRejected counts and logs an error of a peer's request, if the error has a metric.
func (h *Handler) countRejected(err error, peer fmt.Stringer) {
	rejected := &h.Metrics.Rejected
	clients := &h.Metrics.ClientErrors
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
	case errors.Is(err, errNoRules):
		rejected.NoRules.Inc()
		clients.WithoutRules.Report(h.Rare, peer)
	case errors.Is(err, errMalformed):
		h.ReportMalformed(peer)
	}
}

// ReportMalformed counts and logs a request that cannot be decoded.
func (h *Handler) ReportMalformed(peer fmt.Stringer) {
	h.Metrics.Rejected.Malformed.Inc()
	h.Metrics.ClientErrors.Malformed.Report(h.Rare, peer)
}

// peerOf returns the client's address, or nil if it is unknown.
func peerOf(ctx context.Context, c *leases.Connection) fmt.Stringer {
	if c != nil && c.Addr != nil {
		return c.Addr
	}
	if p, ok := grpcpeer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// delayReply waits for the given delay. If ctx is done first, it cancels the charges.
func (h *Handler) delayReply(ctx context.Context, x *Exchange, delay time.Duration) error {
	m := h.Metrics
	m.DelayedResponses.Inc()
	m.PendingDelays.Inc()
	defer m.PendingDelays.Dec()
	if cap(x.Request) > MaxReusableRequest {
		x.Request = nil // free the memory: the request is no longer needed
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

// Cancel cancels the charges of a delayed reply whose client has disconnected or reset the call.
func (h *Handler) Cancel(x *Exchange) {
	now, _ := h.Clock.Now()
	h.Service.Cancel(now, x)
	h.Metrics.CancelledDelays.Inc()
}

// RejectTooLarge counts a request of the given size in bytes, which the transport has not read
// completely, and returns its error.
func (h *Handler) RejectTooLarge(size, maxBytes int, from *leases.Connection) error {
	err := &boundError{messageTooLarge, maxBytes, size}
	failed := status.Error(statusCode(err, h.precise), err.Error())
	h.Metrics.Calls.ShouldRateLimit.Requests.Inc()
	h.countRejected(err, peerOf(context.Background(), from))
	h.Done(failed, 0)
	return failed
}

// statusCode returns the gRPC status code of an error of [Service.Answer]. Unless precise is set,
// errors that envoyproxy/ratelimit also has are UNKNOWN, as there.
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
		return codes.Internal // grpc-go's code for messages that it cannot decode
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
