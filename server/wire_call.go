package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
)

// wireCalls answers the calls of a connection, in its turns.
type wireCalls wireConn

var _ h2.Handler = (*wireCalls)(nil)

// Call implements [h2.Handler].
func (c *wireCalls) Call(call *h2.Call) ([]byte, h2.Status, h2.Later) {
	if call.Method != methodShouldRateLimit {
		b, s := c.begin(call, true)
		if b == nil {
			return nil, s, nil
		}
		return nil, s, b
	}
	trace, message := c.trace(call), call.Message
	if call.Encoding != "" {
		z, err := c.inflate(call, c.wire.limits.MaxMessageBytes)
		if err != nil {
			trace.answered(nil, err)
			return nil, statusOf(err), nil
		}
		defer z.release()
		message = z.out
	}
	trace.received(message)
	return c.shouldRateLimit(call, message, trace)
}

// shouldRateLimit answers a rate-limit request.
func (c *wireCalls) shouldRateLimit(call *h2.Call, message []byte, trace *callTrace) ([]byte, h2.Status, h2.Later) {
	h := c.wire.handler
	if c.x == nil {
		c.x, _ = exchanges.Get().(*exchange)
	}
	x := c.x
	x.call.client, x.trace = c.client, trace
	x.large = x.large || len(message) > maxKept
	deadline := never
	if call.HasTimeout {
		deadline = c.since + call.Timeout
	}
	if h.service.later {
		x.request = append(x.request[:0], message...) // what decides may do so after this turn
		return c.ask(call.Stream, x, deadline)
	}
	reply, delay, took, err := h.decide(trace.contextOf(), c.at, deadline, &x.call, message)
	c.at += max(0, took)
	if delay > 0 {
		x.reply = reply
		c.x = nil // it is the held reply's
		return nil, h2.Status{}, c.hold(call.Stream, x, delay, took)
	}
	h.done(err, took)
	trace.answered(reply, err)
	return reply, statusOf(err), nil
}

// heldReply is a reply that waits for its turn. It has a timer and no goroutine.
type heldReply struct {
	conn   *wireConn
	stream uint32
	x      *exchange
	took   time.Duration
	timer  *time.Timer
	ended  bool // guarded by conn.turn
}

func (c *wireCalls) hold(stream uint32, x *exchange, delay, took time.Duration) *heldReply {
	m := c.wire.handler.service.metrics
	m.WaitedCalls.Inc()
	m.WaitingCalls.Inc()
	c.heldBytes += cap(x.reply)
	held := &heldReply{conn: (*wireConn)(c), stream: stream, x: x, took: took}
	held.timer = time.AfterFunc(delay, func() { held.conn.finish(held) })
	return held
}

// sendLocked sends the reply, unless the call has ended meanwhile.
func (r *heldReply) sendLocked() {
	if r.ended {
		return
	}
	r.ended = true
	c := r.conn
	c.heldBytes -= cap(r.x.reply)
	c.out.bytes = c.h2.Reply(c.out.bytes, r.stream, r.x.reply)
	h := c.wire.handler
	h.service.metrics.WaitingCalls.Dec()
	h.done(nil, r.took)
	r.x.trace.answered(r.x.reply, nil)
	r.x.release()
}

// Cancel implements [h2.Later]: the client went away, so that its turn is given back.
func (r *heldReply) Cancel() {
	if r.ended {
		return
	}
	r.ended = true
	r.conn.heldBytes -= cap(r.x.reply)
	r.timer.Stop()
	h := r.conn.wire.handler
	now, _ := h.clock.Now() // a later moment than the request's
	h.service.Cancel(now, &r.x.call)
	h.service.metrics.WaitingCalls.Dec()
	h.service.metrics.CancelledWaits.Inc()
	err := status.FromContextError(context.Canceled).Err()
	h.done(err, r.took)
	r.x.trace.end(err)
	r.x.release()
}

// Exceeded implements [h2.Handler].
func (c *wireCalls) Exceeded(call *h2.Call, b h2.Bound, size int) h2.Status {
	h := c.wire.handler
	if b == h2.BoundHeaders {
		return statusOf(headersTooLarge(size, int(c.wire.limits.MaxHeaderBytes), h.service.metrics.Rejected.Headers, h.rare))
	}
	if call.Method != methodShouldRateLimit {
		m := &c.wire.bridge.methods[call.Method]
		return statusOf(messageOfOther(m.path, size, cmp.Or(m.mostMessage, c.wire.limits.MaxMessageBytes)))
	}
	err := &boundError{messageTooLarge, c.wire.limits.MaxMessageBytes, size}
	failed := status.Error(codes.ResourceExhausted, err.Error())
	trace := c.trace(call)
	h.service.metrics.Calls.ShouldRateLimit.Requests.Inc()
	h.reject(err)
	h.done(failed, 0)
	trace.answered(nil, failed)
	return statusOf(failed)
}

// inflate decompresses a call's message, to at most so many bytes. The caller releases the inflater.
func (c *wireCalls) inflate(call *h2.Call, most int) (*inflater, error) {
	z, err := (*wireConn)(c).inflateLocked(call.Message, most)
	if err == nil {
		call.Inflated = uint32(len(z.out)) //nolint:gosec // a message is smaller
	}
	return z, err
}

// inflateLocked decompresses a message in a turn, which takes a ticket for one that is not small.
func (c *wireConn) inflateLocked(message []byte, most int) (*inflater, error) {
	z, err := inflateFreely(message, most)
	if errors.Is(err, errNotSmall) {
		c.enterCrowdLocked()
		z, err = inflateLarge(message, most, func(held int) {
			c.parksLocked(held)
			park()
		})
	}
	if err != nil {
		return nil, notInflated(err, most)
	}
	return z, nil
}

// statusOf is an error's status as h2 has it.
func statusOf(err error) h2.Status {
	if err == nil {
		return h2.Status{}
	}
	s, _ := status.FromError(err)
	return h2.Status{Code: uint32(s.Code()), Message: s.Message()}
}
