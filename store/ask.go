package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// An ask is one request on its way. Who takes it out of lane.open decides it.
type ask struct {
	call   script.Call
	now    limiter.Time
	batch  *limiter.Batch // the caller's, until it is decided; nil for what nobody waits for
	waiter limiter.Waiter
	strict bool // without the store there is no decision

	startSays bool // the slot depends on the start of a window, so the counter does not go by its node's clock
	since     time.Time
	until     time.Time // when the fallback decides at the latest

	sent    bool           // since some sender has taken it
	fate    fate           // guarded by fleet.fates, as are debts, strays and foreign
	debts   []*script.Debt // what the fallback has decided, while the fate is not known
	strays  []stray        // what the store may hold for it, likewise
	foreign string         // a key that another program wrote, because of which the store has left the ask alone

	slot   uint16 // of a cluster, to which its keys belong
	alone  bool   // not in one run with others
	asking bool   // of a node that is only about to get the slot
	hops   int    // how often it was sent elsewhere
	bulk   bool   // a part of a large request, for which others do not wait

	isOpen     bool
	prev, next *ask
}

// A stray is a charge that takes something under a lease, and whose caller got the fallback. The lease that the store gives is
// not the caller's, so the debt is to give it back.
type stray struct {
	charge int
	debt   *script.Debt
}

// A fate is what has become of an ask whose caller got the fallback.
type fate uint8

const (
	underWay  fate = iota // not known yet
	counted               // the store has decided it
	uncounted             // it was not sent or not decided, or its connection has ended without a reply
)

// A keeper is a waiter that has its ask, which the store has decided at a time of its own clock, until it frees it.
type keeper interface {
	limiter.Waiter
	keep(a *ask, at limiter.Time)
}

// free are asks that nobody looks at any more: neither a caller, nor a sender, nor the client. One that
// the fallback decided while it was under way is not among them.
var free = sync.Pool{New: func() any { return &ask{} }}

func newAsk() *ask {
	a, _ := free.Get().(*ask)
	a.strict, a.startSays, a.call.Ahead = false, false, 0
	a.sent, a.fate, a.debts, a.strays, a.foreign = false, underWay, nil, nil, ""
	a.slot, a.alone, a.asking, a.hops, a.bulk = 0, false, false, 0, false
	return a
}

func (a *ask) free() {
	a.batch, a.waiter = nil, nil
	free.Put(a)
}

// asks is a list in the order of arrival.
type asks struct{ first, last *ask }

func (l *asks) push(a *ask) {
	a.isOpen, a.prev, a.next = true, l.last, nil
	if l.last == nil {
		l.first = a
	} else {
		l.last.next = a
	}
	l.last = a
}

func (l *asks) remove(a *ask) {
	if a.prev == nil {
		l.first = a.next
	} else {
		a.prev.next = a.next
	}
	if a.next == nil {
		l.last = a.prev
	} else {
		a.next.prev = a.prev
	}
	a.isOpen, a.prev, a.next = false, nil, nil
}
