package server

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
)

// asked is a rate-limit request that a store decides. No goroutine waits for that: the store's own
// leaves the decision in the connection's inbox. It is part of its exchange, which is kept until the
// store has decided, whatever becomes of the call.
type asked struct {
	conn   *wireConn
	stream uint32
	x      *exchange
	start  time.Duration
	err    error // in place of the decision; written before it goes into the inbox

	// What follows is guarded by conn.turn.
	gone bool       // nobody waits for the answer
	held *heldReply // what it has become, if the reply is held
}

// ask has the store decide x.request.
func (c *wireCalls) ask(stream uint32, x *exchange, deadline time.Duration) ([]byte, h2.Status, h2.Later) {
	h := c.wire.handler
	start := c.at
	now := h.begin(start)
	a := &x.asked
	*a = asked{conn: (*wireConn)(c), stream: stream, x: x, start: start}
	done, err := h.beginCall(now, budget(deadline, start), &x.call, x.request, a)
	if err == nil && !done {
		c.x = nil // it is the store's
		c.asked.Add(1)
		c.askedBytes += len(x.request)
		return nil, h2.Status{}, a
	}
	if x.call.undecided { // a panic, and nobody knows what of it the store has
		c.x = nil
	}
	reply, delay, took, err := h.finishCall(x.trace.contextOf(), &x.call, start, err)
	c.at += took
	if delay > 0 {
		x.reply = reply
		c.x = nil // it is the held reply's
		return nil, h2.Status{}, c.hold(stream, x, delay, took)
	}
	h.done(err, took)
	x.trace.answered(reply, err)
	return reply, statusOf(err), nil
}

// Decided implements [limiter.Waiter].
func (a *asked) Decided(err error) {
	if err != nil {
		err = &storeError{err}
	}
	a.err = err
	a.conn.finish(a)
}

// Exceeded implements [limiter.Waiter].
func (a *asked) Exceeded(charge int) func(hits uint64) { return a.x.call.Exceeded(charge) }

// Cancel implements [h2.Later].
func (a *asked) Cancel() {
	a.gone = true
	if a.held != nil {
		a.held.Cancel()
	}
}

// sendLocked sends the reply, or lets it be held.
func (a *asked) sendLocked() {
	c, x, h := a.conn, a.x, a.conn.wire.handler
	c.asked.Add(-1)
	c.askedBytes -= len(x.request)
	x.call.undecided = false
	reply, delay, took, err := h.finishCall(x.trace.contextOf(), &x.call, a.start, a.err)
	switch {
	case a.gone:
		if delay > 0 {
			now, _ := h.clock.Now()
			h.service.Cancel(now, &x.call)
			h.service.metrics.CancelledWaits.Inc()
		}
		err = status.FromContextError(context.Canceled).Err()
	case err != nil:
		c.out.bytes = c.h2.Fail(c.out.bytes, a.stream, statusOf(err))
	case delay > 0:
		x.reply = reply
		a.held = (*wireCalls)(c).hold(a.stream, x, delay, took)
		return
	default:
		c.out.bytes = c.h2.Reply(c.out.bytes, a.stream, reply)
	}
	h.done(err, took)
	if a.gone {
		x.trace.end(err)
	} else {
		x.trace.answered(reply, err)
	}
	x.release()
}
