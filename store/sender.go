package store

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// take waits for asks and moves the oldest to batch, as many as one run decides.
func (l *lane) take(sender int, batch []*ask) ([]*ask, *redis.Conn) {
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
	room, part := l.slowness.bound(script.MostRun), l.slowness.bound(script.MostPart)
	if len(l.bulk) > 0 {
		room -= part
	}
	batch, room = l.move(batch, &l.queue, room)
	since := clock() // a large request's parts wait for each other, not for the store
	if len(batch) > 0 {
		since = batch[0].since
	}
	if len(l.bulk) > 0 {
		batch, _ = l.move(batch, &l.bulk, room+part)
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
		return a.call.Cost + script.CostOfRun
	}
	return a.call.Cost
}

// A flight is what a sender needs for a batch.
type flight struct {
	options *Options
	asks    []*ask
	cargoes []*cargo      // with memory to use again behind
	runs    []*script.Run // of cargoes
	sorted  bool          // cargoes have all asks
	left    limiter.State
}

// send is a sender.
func (l *lane) send(sender int) {
	f := &flight{options: l.options}
	for {
		var c *redis.Conn
		f.asks, c = l.take(sender, f.asks[:0])
		if len(f.asks) == 0 {
			return
		}
		if err := l.fly(c, f); err != nil {
			l.fail(c, redis.NewError(err))
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
func (l *lane) fly(c *redis.Conn, f *flight) (err error) {
	err = redis.ErrPanicked
	if !l.options.guard(func() { err = l.trip(c, f) }) {
		l.abandon(f)
	}
	return err
}

// abandon settles the fates that a panic has left open. The fallback decides the asks that the panic kept from being decided.
func (l *lane) abandon(f *flight) {
	if !f.sorted {
		l.fleet.settled(uncounted, f.asks...)
		return
	}
	for _, r := range f.cargoes {
		for i, a := range r.asks {
			switch {
			case a == nil: // it is settled
			case i < len(r.mine):
				l.fleet.settled(counted, a)
				if r.mine[i] {
					l.fallBack([]*ask{a})
				}
			default:
				l.fleet.settled(uncounted, a)
			}
		}
	}
}

// trip is fly but for panics.
func (l *lane) trip(c *redis.Conn, f *flight) (err error) {
	f.sort()
	sent := l.options.Clock()
	script.Decides.Run(c, f.runs...)
	trip, charges := l.options.Clock().Sub(sent), 0
	for _, r := range f.cargoes {
		where, elsewhere := redirection{}, false
		if r.Err == nil {
			r.Read()
		} else {
			where, elsewhere = l.redirected(r.Err)
		}
		switch {
		case r.Err == nil && r.Native:
			r.Reply.Now = l.time(limiter.Time(l.options.Clock().UnixNano()))
		case r.Err == nil:
			l.learn(r.Reply.Now, sent, trip)
			l.slowness.add(r.Reply.Took, trip, r.Cost())
		case elsewhere:
			asks := r.asks
			r.asks = nil // they may be another lane's
			l.redirect(asks, where)
			continue
		default:
			l.fleet.settled(uncounted, r.asks...)
			r.asks = r.asks[:0]
			err = cmp.Or(err, r.Err)
			continue
		}
		err = cmp.Or(err, l.sift(r))
		charges += r.charges
		l.settle(f, r)
	}
	if charges > 0 {
		l.options.observe().Batch(trip, charges)
	}
	return err
}

// sift leaves those asks in r that the store has decided. It returns an error if the lane is to go away.
func (l *lane) sift(r *cargo) (err error) {
	decided := r.asks[:0]
	for i, a := range r.asks {
		r.asks[i] = nil
		if a.call.Err != nil {
			r.charges -= a.call.Size()
			if !l.options.guard(func() { err = cmp.Or(err, l.handleError(r, a)) }) {
				l.fleet.settled(uncounted, a)
			}
			continue
		}
		decided = append(decided, a)
		if a.call.Bare {
			l.expire(a)
		}
		if a.call.Negative {
			l.recount(a)
		}
	}
	r.asks = decided
	return err
}

// handleError has a decided elsewhere, which the store has not decided. It returns an error if the lane is to go away.
func (l *lane) handleError(r *cargo, a *ask) error {
	if foreign, ok := errors.AsType[*script.ForeignError](a.call.Err); ok {
		l.refuse(r, a, foreign)
	} else if where, elsewhere := l.redirected(a.call.Err); elsewhere {
		l.redirect([]*ask{a}, where)
	} else {
		l.fleet.settled(uncounted, a)
		return a.call.Err
	}
	return nil
}

// recount corrects the counts that a found below 0. Requests that come before it find them below 0, too, and each is counted.
func (l *lane) recount(a *ask) {
	again := newAsk()
	again.call.Recount(&a.call)
	again.slot = a.slot
	again.send(l, l.options.Timeout)
}

// refuse has the fallback decide what an ask of r wants of a counter whose key another program wrote.
func (l *lane) refuse(r *cargo, a *ask, why *script.ForeignError) {
	l.mu.Lock()
	mine := a.isOpen
	if mine {
		l.open.remove(a)
	}
	l.mu.Unlock()
	if mine && l.decideApart(r, a) {
		return
	}
	l.options.observe().Failed(string(redis.Script))
	l.fleet.store.logForeign(l.shard, why)
	if back := newAsk(); back.call.GiveBack(&a.call) { // of a request that needed no script
		back.slot = a.slot
		back.send(l, l.options.Timeout)
	}
	l.fleet.leftAlone(a, why.Key)
	switch {
	case !mine:
	case a.strict:
		l.options.answer(a.waiter, why)
	default:
		l.fallBack([]*ask{a})
	}
}

// settle decides the asks of a run that nobody else has decided.
func (l *lane) settle(f *flight, r *cargo) {
	l.mu.Lock()
	for _, a := range r.asks {
		r.mine = append(r.mine, a.isOpen)
		if a.isOpen {
			l.open.remove(a)
		}
	}
	l.mu.Unlock()
	admitted, whole := int64(0), true
	for i, a := range r.asks {
		r.asks[i] = nil
		if !r.mine[i] {
			l.fleet.settled(counted, a)
		}
		if !r.mine[i] || a.batch == nil {
			whole = false // its decisions are not known here
			continue
		}
		n, decided := l.conclude(f, r, a)
		admitted, whole = admitted+n, whole && decided
	}
	if whole && !r.Native && admitted != r.Reply.Admitted {
		l.options.observe().Diverged()
	}
}

// conclude decides a by what its charges found, tells its waiter and returns how many charges were
// admitted. If that panics the fallback decides a, so that the rest of the batch is not lost too.
func (l *lane) conclude(f *flight, r *cargo, a *ask) (admitted int64, decided bool) {
	w, at := a.waiter, l.convert(r.Reply.Now, a.startSays)
	part, kept := w.(keeper)
	if decided = l.options.guard(func() {
		a.batch.Stored().Decide(at, a.call.Found)
		admitted = script.AdmittedOf(a.batch)
		if !kept {
			l.fleet.store.adopt(at, a.batch, &f.left)
		}
	}); !decided {
		l.fleet.settled(counted, a)
		l.fallBack([]*ask{a})
		return 0, false
	}
	if kept {
		part.keep(a, at)
	} else {
		a.free()
	}
	l.options.answer(w, nil)
	return admitted, true
}

// A cargo is the asks of a batch that one run decides: on a cluster those of one slot, but all that go without the
// script.
type cargo struct {
	script.Run
	asks    []*ask // that have not been decided, or are nil
	mine    []bool // those of asks that were open when the reply came; empty before
	charges int
	slot    uint16
	alone   bool
}

// sort makes f.cargoes those of f.asks.
func (f *flight) sort() {
	f.cargoes, f.runs, f.sorted = f.cargoes[:0], f.runs[:0], false
	for _, a := range f.asks {
		i := -1
		if !a.alone {
			i = slices.IndexFunc(f.cargoes, func(r *cargo) bool {
				return !r.alone && r.Native == a.call.Native && (r.Native || r.slot == a.slot)
			})
		}
		if i < 0 {
			i = f.more(a)
		}
		r := f.cargoes[i]
		r.asks = append(r.asks, a)
		r.Add(&a.call)
		r.charges += a.call.Size()
	}
	f.sorted = true
}

// more appends a cargo of a's kind, and returns its index.
func (f *flight) more(a *ask) int {
	n := len(f.cargoes)
	if n < cap(f.cargoes) && f.cargoes[:n+1][n] != nil {
		f.cargoes = f.cargoes[:n+1]
	} else {
		f.cargoes = append(f.cargoes, &cargo{})
	}
	r := f.cargoes[n]
	f.runs = append(f.runs, &r.Run)
	clear(r.asks)
	r.asks, r.mine, r.charges = r.asks[:0], r.mine[:0], 0
	r.Clear(f.options.storeTime())
	r.slot, r.Native, r.alone, r.Asking = a.slot, a.call.Native, a.alone, a.asking
	return n
}
