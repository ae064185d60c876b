package builtin

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// rateLimitCall is a rate-limit request until its reply. Most are answered within the turn in which they
// arrive, all of them with one piece of memory.
//
// Two kinds are answered later, without a goroutine: a call that a store decides, and one whose reply is held.
// The store or the timer puts the call into the connection's inbox.
//
// A call has one owner at a time, and its stream may refer to it. The call is released once it has ended, its
// owner is a turn, and no stream refers to it: whichever comes last releases it.
type rateLimitCall struct {
	answer.Exchange
	ownership
	conn  *connection
	trace *callTrace // nil without tracing
	start time.Duration
	err   error // of the store, in place of its decision; written before the call goes into the inbox

	// The following fields are guarded by conn.turnMu.
	held     *time.Timer   // ends when the reply is to be sent; nil while a store decides
	took     time.Duration // of a held reply
	size     int           // bytes that it adds to conn.stored or conn.later
	awaited  bool          // its stream refers to it, and was neither answered nor cancelled
	finished bool          // it has been counted as a call that was answered or cancelled
}

// owner is the one that may use a call and passes it on.
type owner uint32

const (
	ownerPool   owner = iota
	ownerTurn         // a turn of its connection, or what remains between the calls of a turn: connection.spare
	ownerStore        // until Decided
	ownerTimer        // until the reply is to be sent
	ownerInbox        // of its connection
	ownerStream       // which cancels it: the connection ends, and the call has ended
)

var rateLimitCalls = sync.Pool{New: func() any { return new(rateLimitCall) }}

func takeRateLimitCall(c *connection) *rateLimitCall {
	x, _ := rateLimitCalls.Get().(*rateLimitCall)
	x.pass(ownerPool, ownerTurn)
	x.conn, x.Connection = c, c.lessee
	return x
}

// release returns a call that a turn owns to the pool.
func (x *rateLimitCall) release() {
	x.conn, x.Connection, x.trace, x.err, x.held, x.finished = nil, nil, nil, nil, nil, false
	x.poison()
	x.pass(ownerTurn, ownerPool)
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
	x.Late = call.HasTimeout && call.Timeout <= 0
	deadline := answer.NoDeadline
	if call.HasTimeout {
		deadline = c.since + call.Timeout
	}
	later := h.Service.DecidesLater()
	if later { // the decider may have the call after this turn, and may be done with it before Begin returns
		x.Request = append(x.Request[:0], message...)
		message = x.Request
		x.pass(ownerTurn, ownerStore)
	}
	done, err := h.Begin(x.start, deadline, &x.Exchange, message, x)
	switch {
	case !later:
	case err == nil && !done:
		c.spare = nil
		x.storedLocked()
		return nil, h2.Status{}, x
	case x.Undecided(): // a panic while the store had the call, which may still decide it
		c.spare = nil
		x.finished, x.trace = true, nil
	default:
		x.pass(ownerStore, ownerTurn)
	}
	delay, took, err := h.Finish(trace.contextOf(), &x.Exchange, x.start, err)
	c.at += took
	if delay > 0 {
		c.spare = nil
		x.hold(delay, took)
		return nil, h2.Status{}, x
	}
	h.Done(err, took)
	trace.answered(x.Reply(), err)
	if err != nil {
		return nil, statusOf(err), nil
	}
	return x.Reply(), h2.Status{}, nil
}

// hold has the reply sent after delay.
func (x *rateLimitCall) hold(delay, took time.Duration) {
	m := x.conn.Handler.Metrics
	m.DelayedResponses.Inc()
	m.PendingDelays.Inc()
	x.size = x.Bytes()
	x.conn.later += x.size
	x.took, x.awaited = took, true
	x.pass(ownerTurn, ownerTimer)
	x.held = time.AfterFunc(delay, func() {
		x.pass(ownerTimer, ownerInbox)
		x.conn.finish(x)
	})
}

func (x *rateLimitCall) Decided(err error) {
	x.err = answer.NotDecided(err)
	x.pass(ownerStore, ownerInbox)
	x.conn.finish(x)
}

// sendLocked implements [finisher]: the store has decided, or the reply was held for long enough.
func (x *rateLimitCall) sendLocked() { x.arrivedLocked(true) }

// dropLocked implements [finisher]: the connection ends.
func (x *rateLimitCall) dropLocked() { x.arrivedLocked(false) }

// arrivedLocked continues a call that was in the inbox. Its answer is sent if the connection goes on and the
// client awaits it.
func (x *rateLimitCall) arrivedLocked(goesOn bool) {
	x.pass(ownerInbox, ownerTurn)
	goesOn = goesOn && x.awaited
	switch {
	case x.held == nil:
		x.decidedLocked(goesOn)
	case goesOn:
		x.answerLocked(x.took, nil)
	case x.finished: // Cancel came too late for the timer
		x.release()
	default:
		x.cancelHeldLocked()
		x.leaveToStream()
	}
}

// decidedLocked continues from the store's decision. What the store took for a call that is not answered is
// given back.
func (x *rateLimitCall) decidedLocked(goesOn bool) {
	h := x.conn.Handler
	if !x.finished {
		x.returnedLocked()
	}
	delay, took, err := h.Finish(x.trace.contextOf(), &x.Exchange, x.start, x.err)
	switch {
	case goesOn && delay > 0:
		x.hold(delay, took)
	case goesOn:
		x.answerLocked(took, err)
	default:
		if delay > 0 {
			h.Cancel(&x.Exchange)
		}
		x.Connection.ResetCall(x.Stream)
		x.cancelledLocked(took)
		x.leaveToStream()
	}
}

// answerLocked sends the reply, or the error in its place, and ends the call.
func (x *rateLimitCall) answerLocked(took time.Duration, err error) {
	c := x.conn
	x.awaited = false
	x.finishedLocked(took, err)
	if err == nil {
		c.out.bytes = c.h2.Reply(c.out.bytes, x.Stream, x.Reply())
	} else {
		c.out.bytes = c.h2.Fail(c.out.bytes, x.Stream, statusOf(err))
	}
	x.trace.answered(x.Reply(), err)
	x.release()
}

// leaveToStream releases a call that has ended without an answer. If its stream refers to it, Cancel does.
func (x *rateLimitCall) leaveToStream() {
	if x.awaited {
		x.pass(ownerTurn, ownerStream)
		return
	}
	x.release()
}

// Cancel implements [h2.Later]: the client went away. If the reply is held, its turn is given back. A call that
// a store decides ends with its decision.
func (x *rateLimitCall) Cancel() {
	if !x.awaited {
		return // the last Cancel panicked
	}
	x.awaited = false
	switch {
	case x.finished:
		x.pass(ownerStream, ownerTurn)
		x.release()
	case x.held != nil:
		x.cancelHeldLocked()
		if x.held.Stop() { // otherwise the call is in the inbox
			x.pass(ownerTimer, ownerTurn)
			x.release()
		}
	}
}

// cancelHeldLocked ends a call whose reply is held.
func (x *rateLimitCall) cancelHeldLocked() {
	x.cancelledLocked(x.took)
	x.conn.Handler.Cancel(&x.Exchange)
}

// cancelledLocked ends a call whose answer the client does not await.
func (x *rateLimitCall) cancelledLocked(took time.Duration) {
	if x.finished {
		return
	}
	err := status.FromContextError(context.Canceled).Err()
	x.finishedLocked(took, err)
	x.trace.end(err)
}

// finishedLocked counts the end of a call.
func (x *rateLimitCall) finishedLocked(took time.Duration, err error) {
	x.finished = true
	if x.held != nil {
		x.conn.later -= x.size
		x.conn.Handler.Metrics.PendingDelays.Dec()
	}
	x.conn.Handler.Done(err, took)
}
