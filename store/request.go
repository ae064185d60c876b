package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// An ask is one request on its way. Who takes it out of lane.open decides it.
type request struct {
	call       script.Call
	now        limiter.Time
	batch      *limiter.Batch // the caller's, until it is decided; nil for what nobody waits for
	waiter     limiter.Waiter
	noFallback bool // without the store there is no decision

	slotByStart bool // the slot depends on the start of a window, so the counter does not go by its node's clock
	queuedAt    time.Time
	deadline    time.Time // when the fallback decides at the latest

	sent       bool               // since some sender has taken it
	outcome    outcome            // guarded by fleet.fates, as are debts, strays and foreign
	unsynced   []*script.Unsynced // what the fallback has decided, while the fate is not known
	strays     []strayLease       // what the store may hold for it, likewise
	foreignKey string             // a key that another program wrote, because of which the store has left the ask alone

	slot     uint16 // of a cluster, to which its keys belong
	isolated bool   // not in one run with others
	asking   bool   // of a node that is only about to get the slot
	hops     int    // how often it was sent elsewhere
	bulk     bool   // a part of a large request, for which others do not wait

	open       bool
	prev, next *request
}

// A stray is a charge that takes something under a lease, and whose caller got the fallback. The lease that the store gives is
// not the caller's, so the debt is to give it back.
type strayLease struct {
	charge  int
	release *script.Unsynced
}

// A fate is what has become of an ask whose caller got the fallback.
type outcome uint8

const (
	outcomePending   outcome = iota // not known yet
	outcomeCounted                  // the store has decided it
	outcomeUncounted                // it was not sent or not decided, or its connection has ended without a reply
)

// A keeper is a waiter that has its ask, which the store has decided at a time of its own clock, until it frees it.
type requestOwner interface {
	limiter.Waiter
	keep(req *request, at limiter.Time)
}

// requestPool are asks that nobody looks at any more: neither a caller, nor a sender, nor the client. One that
// the fallback decided while it was under way is not among them.
var requestPool = sync.Pool{New: func() any { return &request{} }}

func newRequest() *request {
	req, _ := requestPool.Get().(*request)
	req.noFallback, req.slotByStart, req.call.ClockAhead = false, false, 0
	req.sent, req.outcome, req.unsynced, req.strays, req.foreignKey = false, outcomePending, nil, nil, ""
	req.slot, req.isolated, req.asking, req.hops, req.bulk = 0, false, false, 0, false
	return req
}

func (req *request) release() {
	req.batch, req.waiter = nil, nil
	requestPool.Put(req)
}

// requestList is a list in the order of arrival.
type requestList struct{ first, last *request }

func (l *requestList) push(req *request) {
	req.open, req.prev, req.next = true, l.last, nil
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
	req.open, req.prev, req.next = false, nil, nil
}
