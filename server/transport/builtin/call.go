package builtin

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// rateLimitCall is a rate-limit request until its reply. Most calls are answered within the batch
// in which they arrive, all with the same rateLimitCall.
//
// Two kinds are answered later, without a goroutine: calls that a store decides, and calls whose
// reply is delayed. The store or the timer queues the call in the connection's mailbox.
//
// A call has one owner at a time; in addition, its stream may refer to it. It is released when it
// has ended, a batch owns it and no stream refers to it.
type rateLimitCall struct {
	answer.Exchange
	ownership
	conn  *connection
	trace *callTrace // nil without tracing
	start time.Duration
	err   error // the store's error; written before the call is queued in the mailbox

	// The following fields are guarded by conn.mu.
	delayTimer   *time.Timer   // nil while a store decides
	duration     time.Duration // processing time of a call whose reply is delayed
	countedBytes int           // bytes that it contributes to conn.storeBytes or conn.delayedBytes
	awaited      bool          // its stream refers to it, and was neither answered nor canceled
	recorded     bool          // its end has been counted
}

// owner identifies which part of the program may use a call and transfer it.
type owner uint32

const (
	ownerPool    owner = iota
	ownerBatch         // a batch, or connection.spare between the calls of a batch
	ownerStore         // until Decided is called
	ownerTimer         // until the delay is over
	ownerMailbox       // queued
	ownerStream        // until Cancel; the call has ended because the connection ends
)

var rateLimitCalls = sync.Pool{New: func() any { return new(rateLimitCall) }}

func getRateLimitCall(c *connection) *rateLimitCall {
	x, _ := rateLimitCalls.Get().(*rateLimitCall)
	x.transfer(ownerPool, ownerBatch)
	x.conn = c
	x.Connection = c.leaseConn
	return x
}

// release returns a call, owned by a batch, to the pool.
func (x *rateLimitCall) release() {
	x.conn = nil
	x.Connection = nil
	x.trace = nil
	x.err = nil
	x.delayTimer = nil
	x.recorded = false
	x.poison()
	x.transfer(ownerBatch, ownerPool)
	if x.Reusable() {
		rateLimitCalls.Put(x)
	}
}

// shouldRateLimit answers a rate-limit request, or returns a call that is answered later.
func (c *connection) shouldRateLimit(call *h2.Call, trace *callTrace) ([]byte, h2.Status, h2.PendingCall) {
	h := c.Handler
	x := c.spare
	if x == nil {
		x = getRateLimitCall(c)
		c.spare = x
	}
	x.Client = c.client
	x.Stream = call.Stream
	x.trace = trace
	x.start = c.clockAt
	x.DeadlinePassed = call.HasTimeout && call.Timeout <= 0
	deadline := answer.NoDeadline
	if call.HasTimeout {
		deadline = c.batchStart + call.Timeout
	}
	message := call.Message
	later := h.Service.DecidesAsync()
	if later {
		// The store may use the call after this batch, and may decide it before Begin returns.
		x.Request = append(x.Request[:0], message...)
		message = x.Request
		x.transfer(ownerBatch, ownerStore)
	}
	done, err := h.Begin(x.start, deadline, &x.Exchange, message, x)
	switch {
	case !later:
	case err == nil && !done:
		c.spare = nil
		x.addToStoreLocked()
		return nil, h2.Status{}, x
	case x.Undecided(): // a panic; the store may still decide the call
		c.spare = nil
		x.recorded = true
		x.trace = nil
	default:
		x.transfer(ownerStore, ownerBatch)
	}
	delay, took, err := h.Finish(trace.contextOf(), &x.Exchange, x.start, err)
	c.clockAt += took
	if delay > 0 {
		c.spare = nil
		x.delayReply(delay, took)
		return nil, h2.Status{}, x
	}
	h.Done(err, took)
	trace.answered(x.Reply(), err)
	if err != nil {
		return nil, statusOf(err), nil
	}
	return x.Reply(), h2.Status{}, nil
}

// delayReply schedules the reply.
func (x *rateLimitCall) delayReply(delay, took time.Duration) {
	m := x.conn.Handler.Metrics
	m.DelayedResponses.Inc()
	m.PendingDelays.Inc()
	x.countedBytes = x.MemoryBytes()
	x.conn.delayedBytes += x.countedBytes
	x.duration = took
	x.awaited = true
	x.transfer(ownerBatch, ownerTimer)
	x.delayTimer = time.AfterFunc(delay, func() {
		x.transfer(ownerTimer, ownerMailbox)
		x.conn.postCompletion(x)
	})
}

func (x *rateLimitCall) Decided(err error) {
	x.err = answer.WrapStoreError(err)
	x.transfer(ownerStore, ownerMailbox)
	x.conn.postCompletion(x)
}

// sendLocked implements [completion]: the store has decided, or the delay is over.
func (x *rateLimitCall) sendLocked() { x.resumeLocked(true) }

// dropLocked implements [completion]: the connection ends.
func (x *rateLimitCall) dropLocked() { x.resumeLocked(false) }

// resumeLocked continues a call from the mailbox. It sends the reply if the connection continues
// and the call was not canceled.
func (x *rateLimitCall) resumeLocked(reply bool) {
	x.transfer(ownerMailbox, ownerBatch)
	reply = reply && x.awaited
	switch {
	case x.delayTimer == nil:
		x.handleDecisionLocked(reply)
	case reply:
		x.answerLocked(x.duration, nil)
	case x.recorded: // Cancel did not stop the timer in time
		x.release()
	default:
		x.cancelDelayedLocked()
		x.releaseOrLeaveToStream()
	}
}

// handleDecisionLocked continues after the store's decision. If the call is not answered, it
// cancels the charges of a delayed reply and releases leases.
func (x *rateLimitCall) handleDecisionLocked(reply bool) {
	h := x.conn.Handler
	if !x.recorded {
		x.removeFromStoreLocked()
	}
	delay, took, err := h.Finish(x.trace.contextOf(), &x.Exchange, x.start, x.err)
	switch {
	case reply && delay > 0:
		x.delayReply(delay, took)
	case reply:
		x.answerLocked(took, err)
	default:
		if delay > 0 {
			h.Cancel(&x.Exchange)
		}
		x.Connection.ResetCall(x.Stream)
		x.recordCancelLocked(took)
		x.releaseOrLeaveToStream()
	}
}

// answerLocked sends the reply, or the error, and ends the call.
func (x *rateLimitCall) answerLocked(took time.Duration, err error) {
	c := x.conn
	x.awaited = false
	x.recordEndLocked(took, err)
	if err == nil {
		c.out.bytes = c.h2.Reply(c.out.bytes, x.Stream, x.Reply())
	} else {
		c.out.bytes = c.h2.Fail(c.out.bytes, x.Stream, statusOf(err))
	}
	x.trace.answered(x.Reply(), err)
	x.release()
}

// releaseOrLeaveToStream releases a call that ended without a reply. If its stream refers to it,
// Cancel will release it.
func (x *rateLimitCall) releaseOrLeaveToStream() {
	if x.awaited {
		x.transfer(ownerBatch, ownerStream)
		return
	}
	x.release()
}

// Cancel implements [h2.PendingCall]: the call was reset. The charges of a delayed reply are
// canceled. A call in a store ends with its decision.
func (x *rateLimitCall) Cancel() {
	if !x.awaited {
		return // the previous Cancel panicked
	}
	x.awaited = false
	switch {
	case x.recorded:
		x.transfer(ownerStream, ownerBatch)
		x.release()
	case x.delayTimer != nil:
		x.cancelDelayedLocked()
		if x.delayTimer.Stop() { // otherwise the call is in the mailbox
			x.transfer(ownerTimer, ownerBatch)
			x.release()
		}
	}
}

func (x *rateLimitCall) cancelDelayedLocked() {
	x.recordCancelLocked(x.duration)
	x.conn.Handler.Cancel(&x.Exchange)
}

// recordCancelLocked records that a call was canceled, unless its end is recorded.
func (x *rateLimitCall) recordCancelLocked(took time.Duration) {
	if x.recorded {
		return
	}
	err := status.FromContextError(context.Canceled).Err()
	x.recordEndLocked(took, err)
	x.trace.endSpan(err)
}

func (x *rateLimitCall) recordEndLocked(took time.Duration, err error) {
	x.recorded = true
	if x.delayTimer != nil {
		x.conn.delayedBytes -= x.countedBytes
		x.conn.Handler.Metrics.PendingDelays.Dec()
	}
	x.conn.Handler.Done(err, took)
}
