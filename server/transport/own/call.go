package own

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// rateLimitCall is a rate-limit request on its way to its reply. Most are answered within the turn in which
// they come, all of them with one piece of memory.
//
// Two sorts are answered later, without a goroutine: a call that a store decides, and one whose reply is
// held. The store or a timer leaves the call in the connection's inbox. Such a call keeps its memory until
// then, whatever becomes of its client.
type rateLimitCall struct {
	answer.Exchange
	conn  *connection
	trace *callTrace // nil without tracing
	start time.Duration
	err   error // of the store, in place of its decision; written before the call goes into the inbox

	// What follows is guarded by conn.turnMu.
	held *time.Timer   // ends when the reply is to be sent; nil while a store decides
	took time.Duration // of a held reply
	size int           // what it adds to conn.later
	gone bool          // nobody waits for the answer
}

var rateLimitCalls = sync.Pool{New: func() any { return new(rateLimitCall) }}

func takeRateLimitCall(c *connection) *rateLimitCall {
	x, _ := rateLimitCalls.Get().(*rateLimitCall)
	x.conn, x.Bearer = c, c.bearer
	return x
}

func (x *rateLimitCall) release() {
	x.conn, x.Bearer, x.trace, x.err, x.held, x.gone = nil, nil, nil, nil, nil, false
	if x.Kept() {
		rateLimitCalls.Put(x)
	}
}

// shouldRateLimit answers a rate-limit request, or lets it be answered later.
func (c *connection) shouldRateLimit(call *h2.Call, message []byte, trace *callTrace) ([]byte, h2.Status, h2.Later) {
	h := c.Handler
	x, ok := c.spare.(*rateLimitCall)
	if !ok {
		x = takeRateLimitCall(c)
		c.spare = x
	}
	x.Client, x.Stream, x.trace, x.start = c.client, call.Stream, trace, c.at
	deadline := answer.NoDeadline
	if call.HasTimeout {
		deadline = c.since + call.Timeout
	}
	if h.Service.DecidesLater() { // what decides may do so after this turn
		x.Request = append(x.Request[:0], message...)
		message = x.Request
	}
	done, err := h.Begin(x.start, deadline, &x.Exchange, message, x)
	if err == nil && !done {
		c.spare = nil // it is the store's
		c.deciding.Add(1)
		x.holds(len(x.Request))
		return nil, h2.Status{}, x
	}
	if x.Undecided() { // a panic, and nobody knows what of the request the store has
		c.spare = nil
	}
	delay, took, err := h.Finish(x.trace.contextOf(), &x.Exchange, x.start, err)
	c.at += took
	if delay > 0 {
		c.spare = nil // it is the timer's
		x.hold(delay, took)
		return nil, h2.Status{}, x
	}
	h.Done(err, took)
	x.trace.answered(x.Reply(), err)
	if err != nil {
		return nil, statusOf(err), nil
	}
	return x.Reply(), h2.Status{}, nil
}

// holds says how many bytes a call holds that is answered later.
func (x *rateLimitCall) holds(bytes int) {
	x.conn.later += bytes - x.size
	x.size = bytes
}

// hold has the reply sent after delay.
func (x *rateLimitCall) hold(delay, took time.Duration) {
	m := x.conn.Handler.Metrics
	m.WaitedCalls.Inc()
	m.WaitingCalls.Inc()
	x.holds(cap(x.Reply()))
	x.took = took
	x.held = time.AfterFunc(delay, func() { x.conn.finish(x) })
}

// Decided implements [limiter.Waiter].
func (x *rateLimitCall) Decided(err error) {
	x.err = answer.NotDecided(err)
	x.conn.finish(x)
}

// sendLocked implements [finisher]: the store has decided, or the reply was held for long enough.
func (x *rateLimitCall) sendLocked() {
	switch {
	case x.held == nil:
		x.decidedLocked()
	case x.gone: // Cancel has ended it, too late for the timer
		x.release()
	default:
		x.conn.Handler.Metrics.WaitingCalls.Dec()
		x.answerLocked(x.took, nil)
	}
}

// dropLocked implements [finisher]. What a store took for the call is given back.
func (x *rateLimitCall) dropLocked() {
	if x.held == nil {
		x.gone = true
		x.decidedLocked()
	}
}

// decidedLocked goes on from the store's decision.
func (x *rateLimitCall) decidedLocked() {
	h := x.conn.Handler
	x.conn.deciding.Add(-1)
	delay, took, err := h.Finish(x.trace.contextOf(), &x.Exchange, x.start, x.err)
	switch {
	case x.gone:
		if delay > 0 {
			h.Cancel(&x.Exchange)
		}
		x.Bearer.Reset(x.Stream)
		x.cancelLocked(took)
		x.release()
	case delay > 0:
		x.hold(delay, took)
	default:
		x.answerLocked(took, err)
	}
}

// answerLocked sends the reply, or the error in its place, and ends the call.
func (x *rateLimitCall) answerLocked(took time.Duration, err error) {
	c := x.conn
	if err == nil {
		c.out.bytes = c.h2.Reply(c.out.bytes, x.Stream, x.Reply())
	} else {
		c.out.bytes = c.h2.Fail(c.out.bytes, x.Stream, statusOf(err))
	}
	x.holds(0)
	c.Handler.Done(err, took)
	x.trace.answered(x.Reply(), err)
	x.release()
}

// Cancel implements [h2.Later]: the client went away. If the reply is held, its turn is given back; a store
// may still have the call.
func (x *rateLimitCall) Cancel() {
	x.gone = true
	if x.held == nil {
		return
	}
	h := x.conn.Handler
	h.Cancel(&x.Exchange)
	h.Metrics.WaitingCalls.Dec()
	x.cancelLocked(x.took)
	if x.held.Stop() { // else the call is in the inbox
		x.release()
	}
}

// cancelLocked ends a call for which nobody waits.
func (x *rateLimitCall) cancelLocked(took time.Duration) {
	x.holds(0)
	err := status.FromContextError(context.Canceled).Err()
	x.conn.Handler.Done(err, took)
	x.trace.end(err)
}
