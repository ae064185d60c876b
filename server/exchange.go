package server

import "context"

// An exchange is a request's bytes that become a reply's bytes: neither becomes a protobuf message. It has
// the memory for that, and is used again for later requests. The zero value is ready.
type exchange struct {
	call    Call
	request []byte
	reply   []byte // a view of the call's memory
	large   bool   // it answered a request of more than maxKept
}

// maxKept is the largest request, in bytes, whose exchange is kept for later requests. Without it,
// a few large requests could in time make every pooled exchange large.
const maxKept = 8 << 10

// kept reports whether the exchange may be used for another request: it is not large, and no store has it.
func (x *exchange) kept() bool {
	return !x.large && cap(x.request) <= maxKept && !x.call.undecided
}

// answer answers x.request in x.reply. It returns once the reply was held for as long as the rules say. The
// error has a gRPC status.
func (h *handler) answer(ctx context.Context, x *exchange) error {
	start, deadline := h.clock.Elapsed(), never
	if d, ok := ctx.Deadline(); ok {
		deadline = h.clock.ElapsedAt(d)
	}
	if h.service.settings.Allow != nil {
		x.call.client = clientOf(ctx)
	}
	err := x.call.await(h.begin(start, deadline, x, x.request, x.call.waiting()))
	delay, took, err := h.finish(ctx, x, start, err)
	if delay > 0 {
		err = h.hold(ctx, x, delay)
	}
	h.done(err, took)
	return err
}
