package store

import (
	"fmt"
	"sync"
	"sync/atomic"
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
	offset  atomic.Int64 // the store's time less ours, in nanoseconds

	// Guards what follows. Nothing waits or calls the client library while it is held.
	mu      sync.Mutex
	wake    sync.Cond
	client  *client // nil while the lane is away
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
	since  time.Time
	until  time.Time // when the fallback decides at the latest
	found  []limiter.State

	isOpen     bool
	prev, next *ask
}

// free are asks that nobody looks at any more: neither a caller, nor a sender, nor the client. One that
// the fallback decided while it was under way is not among them.
var free = sync.Pool{New: func() any { return &ask{} }}

func newAsk() *ask {
	a, _ := free.Get().(*ask)
	a.batch, a.waiter, a.strict = nil, nil, false
	return a
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

func newLane(options *Options, shard string, dial dialer) *lane {
	l := &lane{options: options, shard: shard, dial: dial, lost: make(chan lost, 1)}
	l.wake.L = &l.mu
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	return l
}

// put queues a. It reports false if the lane is away.
func (l *lane) put(a *ask) bool {
	l.mu.Lock()
	if l.client == nil || l.closed {
		l.mu.Unlock()
		return false
	}
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
	for len(l.queue) == 0 && !l.closed {
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
	message message
	reply   reply
	asks    []*ask
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
	f.message.clear(0)
	charges := 0
	for _, a := range f.asks {
		f.message.add(&a.call)
		charges += len(a.call.charges)
	}
	sent := clock()
	if err := c.run(&f.message, &f.reply); err != nil {
		return err
	}
	trip := clock().Sub(sent)
	l.options.observe().Batch(l.shard, trip, charges)
	l.offset.Store(int64(f.reply.now) - sent.Add(trip/2).UnixNano())
	for _, a := range f.asks {
		if a.found, err = f.reply.read(&f.message, &a.call, a.found); err != nil {
			return &failure{Reply, err}
		}
	}
	l.settle(f)
	return nil
}

// settle decides the asks of a batch that nobody else has decided.
func (l *lane) settle(f *flight) {
	f.mine = f.mine[:0]
	l.mu.Lock()
	for _, a := range f.asks {
		f.mine = append(f.mine, a.isOpen)
		if a.isOpen {
			l.open.remove(a)
		}
	}
	l.mu.Unlock()
	admitted, whole := int64(0), true
	for i, a := range f.asks {
		if !f.mine[i] || a.batch == nil {
			whole = false // its decisions are not known here
			continue
		}
		a.batch.Conclude(f.reply.now, a.found)
		admitted += admittedOf(a.batch)
		l.options.adopt(f.reply.now, a.batch, &f.left)
		w := a.waiter
		a.batch, a.waiter = nil, nil
		free.Put(a)
		w.Decided(nil)
	}
	if whole && admitted != f.reply.admitted {
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
	if !oldest.IsZero() && now.Sub(oldest) >= l.options.Timeout && l.client != nil {
		c := l.client
		l.mu.Unlock()
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
	l.client = nil
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

func (l *lane) fallBack(waiting []*ask) {
	for _, a := range waiting {
		switch {
		case a.batch == nil: // nobody waits
		case a.strict:
			a.waiter.Decided(ErrAway)
		default:
			a.waiter.Decided(l.options.fallBack(l.time(a.now), a.batch))
		}
	}
}

// up reports whether the lane is not away.
func (l *lane) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil
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
