package store

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// take waits for asks and moves the oldest to batch, as many as one run decides.
func (l *lane) take(sender int, batch []*ask) ([]*ask, *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sending[sender].IsZero() {
		l.sending[sender], l.heard = time.Time{}, clock()
	}
	for (len(l.queue) == 0 && len(l.bulk) == 0 || l.fresh) && !l.closed {
		l.wake.Wait()
	}
	if l.closed {
		return nil, nil
	}
	room := mostRun
	if len(l.bulk) > 0 {
		room -= mostPart
	}
	batch, room = l.move(batch, &l.queue, room)
	since := clock() // a large request's parts wait for each other, not for the store
	if len(batch) > 0 {
		since = batch[0].since
	}
	if len(l.bulk) > 0 {
		batch, _ = l.move(batch, &l.bulk, room+mostPart)
	}
	l.sending[sender] = since
	l.flying++
	for _, a := range batch {
		a.sent = true
	}
	if len(l.queue) > 0 || len(l.bulk) > 0 {
		l.wake.Signal()
	}
	return batch, l.client
}

// move moves the oldest of a queue to batch, as many as have room, and one at least. It returns what room
// is left.
func (l *lane) move(batch []*ask, queue *[]*ask, room time.Duration) ([]*ask, time.Duration) {
	q, n := *queue, 0
	for n < len(q) && (n == 0 || q[n].cost(l) <= room) {
		room -= q[n].cost(l)
		n++
	}
	batch = append(batch, q[:n]...)
	rest := copy(q, q[n:])
	clear(q[rest:])
	*queue = q[:rest]
	return batch, room
}

// cost estimates how long a takes in the store.
func (a *ask) cost(l *lane) time.Duration {
	if l.fleet.server.Nodes != nil || a.alone { // most have a run of their own
		return a.call.cost + costOfRun
	}
	return a.call.cost
}

// A flight is what a sender needs for a batch.
type flight struct {
	options *Options
	message message // of a probe
	reply   reply
	asks    []*ask
	all     []*run // with memory to use again behind
	mine    []bool
	left    limiter.State
}

// send is a sender.
func (l *lane) send(sender int) {
	f := &flight{options: l.options}
	for {
		var c *client
		f.asks, c = l.take(sender, f.asks[:0])
		if len(f.asks) == 0 {
			return
		}
		if err := l.fly(c, f); err != nil {
			l.fail(c, &failure{kindOf(err), err})
			f = &flight{options: l.options} // the client may yet read the old one
		}
		l.land()
	}
}

// land says that a message is no longer under way.
func (l *lane) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flying--; l.flying == 0 {
		l.landed.Broadcast()
	}
}

// ground waits until no message is under way on a connection that was closed.
func (l *lane) ground() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flying > 0 {
		l.landed.Wait()
	}
}

// fly sends a batch and decides its asks by the reply. After a panic it is an error, and whoever is
// not answered yet still waits.
func (l *lane) fly(c *client, f *flight) (err error) {
	err = errPanicked
	l.options.guard(func() { err = l.trip(c, f) })
	return err
}

// trip is fly but for panics.
func (l *lane) trip(c *client, f *flight) (err error) {
	f.sort()
	sent := l.options.Clock()
	c.runs(f.all)
	trip, charges := l.options.Clock().Sub(sent), 0
	for _, r := range f.all {
		where, elsewhere := redirection{}, false
		if r.err == nil {
			r.read()
		} else {
			where, elsewhere = l.redirected(r.err)
		}
		switch {
		case r.err == nil && r.native:
			r.reply.now = l.fleet.time(limiter.Time(l.options.Clock().UnixNano()))
		case r.err == nil:
			l.fleet.learn(r.reply.now, sent, trip)
		case elsewhere:
			l.redirect(r.asks, where)
			continue
		default:
			l.fleet.settled(uncounted, r.asks...)
			err = cmp.Or(err, r.err)
			continue
		}
		err = cmp.Or(err, l.sift(r))
		charges += r.charges
		l.settle(f, r)
	}
	if charges > 0 {
		l.options.observe().Batch(l.shard, trip, charges)
	}
	return err
}

// sift leaves those asks in r that the store has decided. It returns an error if the lane is to go away.
func (l *lane) sift(r *run) (err error) {
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool {
		if a.err == nil {
			return false
		}
		r.charges -= len(a.call.charges)
		if foreign, ok := errors.AsType[*foreignError](a.err); ok {
			l.refuse(a, foreign)
		} else if where, elsewhere := l.redirected(a.err); elsewhere {
			l.redirect([]*ask{a}, where)
		} else {
			l.fleet.settled(uncounted, a)
			err = cmp.Or(err, a.err)
		}
		return true
	})
	return err
}

// refuse has the fallback decide an ask on a counter whose key another program wrote.
func (l *lane) refuse(a *ask, why *foreignError) {
	l.options.observe().Failed(l.shard, Script)
	l.fleet.store.tellForeign(l.shard, why)
	l.mu.Lock()
	mine := a.isOpen
	if mine {
		l.open.remove(a)
	}
	l.mu.Unlock()
	switch {
	case !mine:
	case a.strict:
		l.options.tell(a.waiter, why)
	default:
		l.fleet.settled(counted, a) // the store could not be charged later either
		l.fallBack([]*ask{a})
	}
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
		if !f.mine[i] {
			l.fleet.settled(counted, a)
		}
		if !f.mine[i] || a.batch == nil {
			whole = false // its decisions are not known here
			continue
		}
		n, decided := l.conclude(f, r, a)
		admitted, whole = admitted+n, whole && decided
	}
	if whole && !r.native && admitted != r.reply.admitted {
		l.options.observe().Diverged(l.shard)
	}
}

// conclude decides a by what its charges found, tells its waiter and returns how many charges were
// admitted. If that panics the fallback decides a, so that the rest of the batch is not lost too.
func (l *lane) conclude(f *flight, r *run, a *ask) (admitted int64, decided bool) {
	w, at := a.waiter, r.reply.now
	if decided = l.options.guard(func() {
		a.batch.Stored().Conclude(at, a.found)
		admitted = admittedOf(a.batch)
		if a.part == nil {
			l.fleet.store.adopt(at, a.batch, &f.left)
		}
	}); !decided {
		l.fleet.settled(counted, a)
		l.fallBack([]*ask{a})
		return 0, false
	}
	if a.part != nil { // which has a until its request is decided
		a.part.ask, a.part.at = a, at
	} else {
		a.free()
	}
	l.options.tell(w, nil)
	return admitted, true
}
