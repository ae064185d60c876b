package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// mostCharges is how many charges a batch holds, but for a request that has more.
	mostCharges = 256
	// senders are as many batches as may be under way. What comes meanwhile is the next.
	senders = 2
)

// A lane brings charges to one primary. Callers queue; its senders are all that calls the client
// library, since that may wait for places and dials without looking at a deadline. Its
// timer watches those who wait. Its prober brings it back when it is away.
type lane struct {
	options *Options
	shard   string
	dial    dialer
	fleet   *fleet

	// Guards what follows. Nothing waits or calls the client library while it is held.
	mu      sync.Mutex
	wake    sync.Cond
	client  *client // nil while the lane is away
	fresh   bool    // the lane is not away yet: the first connection is being made
	used    bool    // since wasUsed
	queue   []*ask  // that no sender has taken
	open    asks    // that are not decided
	sending [senders]time.Time
	timer   *time.Timer
	fires   time.Time // zero if the timer is not set
	closed  bool
	lost    chan lost // to the prober
}

// clock tells how long callers and servers take, for which the machine's time is right.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// A lost client is one that failed.
type lost struct {
	client *client
	why    *failure
}

// An ask is one request on its way. Who takes it out of lane.open decides it.
type ask struct {
	call   call
	now    limiter.Time
	batch  *limiter.Batch // the caller's, until it is decided; nil for what nobody waits for
	waiter Waiter
	strict bool // without the store there is no decision
	part   *part
	since  time.Time
	until  time.Time // when the fallback decides at the latest
	found  []limiter.State

	slot   uint16 // of a cluster, to which its keys belong
	alone  bool   // not in one run with others
	asking bool   // of a node that is only about to get the slot
	hops   int    // how often it was sent elsewhere

	isOpen     bool
	prev, next *ask
}

// free are asks that nobody looks at any more: neither a caller, nor a sender, nor the client. One that
// the fallback decided while it was under way is not among them.
var free = sync.Pool{New: func() any { return &ask{} }}

func newAsk() *ask {
	a, _ := free.Get().(*ask)
	a.strict = false
	a.slot, a.alone, a.asking, a.hops = 0, false, false, 0
	return a
}

func (a *ask) free() {
	a.batch, a.waiter, a.part = nil, nil, nil
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

func newLane(f *fleet, shard string, dial dialer) *lane {
	l := &lane{options: f.options, shard: shard, dial: dial, fleet: f, lost: make(chan lost, 1)}
	l.wake.L = &l.mu
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	return l
}

// run brings asks to the server until ctx ends, and returns when all that it started has ended.
func (l *lane) run(ctx context.Context) {
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() { l.send(n) }) //nolint:contextcheck // close ends it
	}
	l.probe(ctx)
	l.close()
	all.Wait()
}

// put queues a. It reports false if the lane is away.
func (l *lane) put(a *ask) bool {
	l.mu.Lock()
	if l.client == nil && !l.fresh || l.closed {
		l.mu.Unlock()
		return false
	}
	l.used = true
	l.open.push(a)
	l.queue = append(l.queue, a)
	if l.fires.IsZero() || a.until.Before(l.fires) {
		l.setTimerLocked(a.until)
	}
	l.wake.Signal()
	l.mu.Unlock()
	return true
}

func (l *lane) setTimerLocked(at time.Time) {
	l.fires = at
	l.timer.Reset(at.Sub(clock()))
}

// take waits for asks and moves the oldest to batch, as many as one run decides.
func (l *lane) take(sender int, batch []*ask) ([]*ask, *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending[sender] = time.Time{}
	for (len(l.queue) == 0 || l.fresh) && !l.closed {
		l.wake.Wait()
	}
	if l.closed {
		return nil, nil
	}
	n, charges := 0, 0
	for n < len(l.queue) && (n == 0 || charges+len(l.queue[n].call.charges) <= mostCharges) {
		a := l.queue[n]
		charges += len(a.call.charges)
		n++
	}
	batch = append(batch, l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.sending[sender] = batch[0].since
	if rest > 0 {
		l.wake.Signal()
	}
	return batch, l.client
}

// A flight is what a sender needs for a batch.
type flight struct {
	message message // of a probe
	reply   reply
	asks    []*ask
	all     []*run // with memory to use again behind
	mine    []bool
	left    limiter.State
}

// send is a sender.
func (l *lane) send(sender int) {
	f := &flight{}
	for {
		var c *client
		f.asks, c = l.take(sender, f.asks[:0])
		if len(f.asks) == 0 {
			return
		}
		if c == nil { // the lane went away just now, and they have been decided
			continue
		}
		if err := l.fly(c, f); err != nil {
			l.fail(c, &failure{kindOf(err), err})
			f = &flight{} // the client may yet read the old one
		}
	}
}

// fly sends a batch and decides its asks by the reply. A panic is an error.
func (l *lane) fly(c *client, f *flight) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decide by the store's reply: panic: %v", r)
		}
	}()
	f.sort()
	sent := clock()
	c.runs(f.all)
	trip, charges := clock().Sub(sent), 0
	for _, r := range f.all {
		where, elsewhere := redirection{}, false
		if r.err == nil {
			r.err = r.read()
		} else {
			where, elsewhere = redirected(r.err)
		}
		switch {
		case r.err == nil:
			l.fleet.offset.Store(int64(r.reply.now) - sent.Add(trip/2).UnixNano())
			charges += r.charges
			l.settle(f, r)
		case elsewhere:
			l.options.observe().Failed(l.shard, Cluster)
			l.redirect(r, where)
		case err == nil:
			err = r.err
		}
	}
	if charges > 0 {
		l.options.observe().Batch(l.shard, trip, charges)
	}
	return err
}

// settle decides the asks of a run that nobody else has decided.
func (l *lane) settle(f *flight, r *run) {
	f.mine = f.mine[:0]
	l.mu.Lock()
	for _, a := range r.asks {
		f.mine = append(f.mine, a.isOpen)
		if a.isOpen {
			l.open.remove(a)
		}
	}
	l.mu.Unlock()
	admitted, whole := int64(0), true
	for i, a := range r.asks {
		if !f.mine[i] || a.batch == nil {
			whole = false // its decisions are not known here
			continue
		}
		a.batch.Conclude(r.reply.now, a.found)
		admitted += admittedOf(a.batch)
		w := a.waiter
		if a.part != nil { // which has a until its request is decided
			a.part.ask, a.part.at = a, r.reply.now
		} else {
			l.fleet.store.adopt(r.reply.now, a.batch, &f.left)
			a.free()
		}
		w.Decided(nil)
	}
	if whole && admitted != r.reply.admitted {
		l.options.observe().Diverged(l.shard)
	}
}

// tick is called when somebody has waited long enough.
func (l *lane) tick() {
	now := clock()
	l.mu.Lock()
	l.fires = time.Time{}
	oldest := time.Time{}
	for _, since := range l.sending {
		if !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	if len(l.queue) > 0 && (oldest.IsZero() || l.queue[0].since.Before(oldest)) {
		oldest = l.queue[0].since
	}
	if !oldest.IsZero() && now.Sub(oldest) >= l.options.Timeout && (l.client != nil || l.fresh) {
		c := l.client
		l.mu.Unlock()
		if c == nil {
			l.giveUp()
			return
		}
		l.fail(c, &failure{Timeout, fmt.Errorf("no answer within %v", l.options.Timeout)})
		return
	}
	// Those whose own deadline is nearer say nothing of the store.
	next := time.Time{}
	if !oldest.IsZero() {
		next = oldest.Add(l.options.Timeout)
	}
	var late []*ask
	for a := l.open.first; a != nil; {
		following := a.next
		if !a.until.After(now) {
			l.open.remove(a)
			late = append(late, a)
		} else if next.IsZero() || a.until.Before(next) {
			next = a.until
		}
		a = following
	}
	if !next.IsZero() {
		l.setTimerLocked(next)
	}
	l.mu.Unlock()
	l.fallBack(late)
}

// fail makes the lane go away if it still uses c: all who wait get the fallback at once, and those
// who come later too.
func (l *lane) fail(c *client, why *failure) {
	l.mu.Lock()
	if l.client != c || l.closed {
		l.mu.Unlock()
		return
	}
	waiting := l.emptyLocked()
	l.mu.Unlock()
	l.lost <- lost{c, why} // there is room: only the prober gives the lane a client
	l.fallBack(waiting)
}

// emptyLocked takes the client and all who wait from the lane, and returns the latter.
func (l *lane) emptyLocked() (waiting []*ask) {
	l.client, l.fresh = nil, false
	for a := l.open.first; a != nil; a = l.open.first {
		l.open.remove(a)
		waiting = append(waiting, a)
	}
	clear(l.queue)
	l.queue = l.queue[:0]
	l.sending = [senders]time.Time{}
	l.timer.Stop()
	l.fires = time.Time{}
	return waiting
}

// giveUp makes the lane go away if it is fresh.
func (l *lane) giveUp() {
	l.mu.Lock()
	if !l.fresh || l.closed {
		l.mu.Unlock()
		return
	}
	waiting := l.emptyLocked()
	l.mu.Unlock()
	l.fallBack(waiting)
}

// address returns where the lane's connection leads, nothing while it is away.
func (l *lane) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return ""
	}
	return l.client.address
}

// leave makes the lane go away if it is at another server than the one at address.
func (l *lane) leave(address string) {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	if c != nil && c.address != address {
		l.fail(c, &failure{ReadOnly, fmt.Errorf("the primary is no longer at %s but at %s", c.address, address)})
	}
}

func (l *lane) fallBack(waiting []*ask) {
	for _, a := range waiting {
		switch {
		case a.batch == nil: // nobody waits
		case a.strict:
			a.waiter.Decided(ErrAway)
		default:
			a.waiter.Decided(l.options.fallBack(l.fleet.time(a.now), a.batch))
		}
	}
}

// up reports whether the lane is not away.
func (l *lane) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil
}

// takes reports whether put would take an ask.
func (l *lane) takes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil || l.fresh
}

// wasUsed reports whether anybody asked since it was called last.
func (l *lane) wasUsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.used
	l.used = false
	return was
}

// close ends the lane's senders and timer. Who still waits gets the fallback.
func (l *lane) close() {
	l.mu.Lock()
	c := l.client
	l.closed = true
	waiting := l.emptyLocked()
	l.wake.Broadcast()
	l.mu.Unlock()
	l.fallBack(waiting)
	if c != nil {
		c.close()
	}
}
