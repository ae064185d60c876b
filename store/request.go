package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A request is a call that is queued at a shard or in flight. The goroutine that removes it from
// shard.open decides it.
type request struct {
	call   script.Call
	now    limiter.Time
	batch  *limiter.Batch // the waiter's, until it is decided; nil without a waiter
	waiter limiter.Waiter
	end    ending

	slotByStart bool // the slot depends on the start of a window, so the counter does not use its node's clock
	queuedAt    time.Time
	deadline    time.Time // when the fallback decides at the latest

	sent      bool             // a sender has taken it
	outcome   outcome          // protected by backend.outcomeMu, as are the fields up to foreign
	unsynced  []unsyncedCharge // hits and leases of the fallback, until the outcome is known
	copied    *limiter.Batch   // a copy of batch if there are unsynced hits, to see which hits the store counted
	strays    []strayLease     // leases that the store may have granted, until the outcome is known
	foreign   bool             // the store has not decided the request, because another program wrote a key
	repliedAt limiter.Time     // time of the reply by the counter's clock; written before outcomeCounted

	own      []ownPart   // hits of this replica's blocks that are part of the charges
	only     *redis.Conn // connection to be sent on, nil for any
	slot     uint16      // slot of its keys on a cluster
	isolated bool        // runs alone
	asking   bool        // send ASKING first: the node is importing the slot
	hops     int         // number of redirections
	bulk     bool        // part of a large request, which does not delay other requests

	open       bool
	prev, next *request
}

// An unsyncedCharge is what the fallback admitted for a charge.
type unsyncedCharge struct {
	*script.Unsynced

	charge int
}

// A strayLease is a lease that the store may have granted to a charge whose caller got the
// fallback. The caller does not know it, so it is released.
type strayLease struct {
	charge  int
	release *script.Unsynced
}

// An outcome is the store's result for a request that the fallback may have decided first.
type outcome uint8

const (
	outcomePending   outcome = iota // not known yet
	outcomeCounted                  // the store has decided it, at repliedAt
	outcomeUncounted                // the store has not decided it, or the connection ended without a reply
)

// requestPool has requests that no caller, sender or connection uses. A request that the fallback
// decided while it was in flight is not put back.
var requestPool = sync.Pool{New: func() any { return &request{} }}

func newRequest() *request {
	req, _ := requestPool.Get().(*request)
	*req = request{call: req.call, own: req.own[:0], end: callerEnding{}}
	req.call.ClockAhead = 0
	return req
}

func (req *request) release() {
	req.batch = nil
	req.waiter = nil
	req.end = nil
	requestPool.Put(req)
}

// A requestList is a list in the order of arrival.
type requestList struct{ first, last *request }

func (l *requestList) push(req *request) {
	req.open = true
	req.prev = l.last
	req.next = nil
	if l.last == nil {
		l.first = req
	} else {
		l.last.next = req
	}
	l.last = req
}

func (l *requestList) remove(req *request) {
	if req.prev == nil {
		l.first = req.next
	} else {
		req.prev.next = req.next
	}
	if req.next == nil {
		l.last = req.prev
	} else {
		req.next.prev = req.prev
	}
	req.open = false
	req.prev = nil
	req.next = nil
}
