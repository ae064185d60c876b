package server

import (
	"context"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
)

// serviceName is the gRPC service's full name.
const serviceName = "envoy.service.ratelimit.v3.RateLimitService"

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

// never is the deadline of a call without one.
const never = time.Duration(math.MaxInt64)

// begin counts a request that begins at start, and does the part of its answer up to the decision, as
// [Service.Begin] does. Start and deadline are times of h.clock. The error is for finish.
func (h *handler) begin(start, deadline time.Duration, x *exchange, request []byte, w limiter.Waiter) (done bool, err error) {
	defer h.caught(x, &err)
	if counting {
		h.service.metrics.Calls.ShouldRateLimit.Requests.Inc()
	}
	budget := never // how long the reply may be held
	if deadline != never {
		budget = deadline - start - margin
	}
	return h.service.Begin(h.clock.At(start), budget, &x.call, request, w)
}

// finish is the rest of the answer, or the end of a request that began at start and failed for that reason.
// x.reply is to be sent after delay. The error has a gRPC status. The caller calls done with the error and
// took once the call has ended.
func (h *handler) finish(ctx context.Context, x *exchange, start time.Duration, why error) (delay, took time.Duration, err error) {
	if counting {
		took = h.clock.Elapsed() - start
	}
	defer h.caught(x, &err)
	x.reply = nil
	if errors.Is(why, errPanicked) {
		return 0, took, why
	}
	var hold time.Duration
	if why == nil {
		x.reply, hold = h.service.Finish(&x.call)
	}
	return hold, took, h.answered(ctx, &x.call, hold, why)
}

// caught is deferred by what may panic: a bug of ours must cost one reply, not the process.
func (h *handler) caught(x *exchange, err *error) {
	if p := recover(); p != nil {
		h.panics.Caught(p)
		if !x.call.undecided { // else the store may still have it
			x.call = Call{} // its state is unknown
		}
		x.reply, *err = nil, errPanicked
	}
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
		h.cancel(x)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// cancel gives back the turn of a reply that is held, as its client went away.
func (h *handler) cancel(x *exchange) {
	now, _ := h.clock.Now() // a later moment than the request's
	h.service.Cancel(now, &x.call)
	h.service.metrics.CancelledWaits.Inc()
}

// tooLarge rejects and counts a request of so many bytes, which the transport has not read to its end.
func (h *handler) tooLarge(size, most int) error {
	err := &boundError{messageTooLarge, most, size}
	failed := status.Error(code(err, h.precise), err.Error())
	h.service.metrics.Calls.ShouldRateLimit.Requests.Inc()
	h.reject(err)
	h.done(failed, 0)
	return failed
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
