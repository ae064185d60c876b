package store

import (
	"fmt"
	"slices"
	"time"
)

const (
	// reserve is what of a call's budget is kept for its reply: the fallback's decision, the write,
	// and Envoy's reading. TestFaultTable and the command in docs/store.md measure what it takes.
	reserve = 3 * time.Millisecond
	// grace is how much longer the timer waits when somebody has waited long enough. Where
	// this process had no CPU, the timer fires before the reply is read that has long been there.
	grace = 500 * time.Microsecond
)

// wait returns how long a call waits for the store that has so much left of its deadline.
func (o *Options) wait(budget time.Duration) time.Duration {
	if budget == 0 { // it has none
		return o.Timeout
	}
	return min(o.Timeout, max(budget-reserve, budget/2))
}

// tick is called when somebody has waited long enough.
func (l *lane) tick() {
	now := clock()
	l.mu.Lock()
	l.fires = time.Time{}
	due, away := l.dueLocked()
	switch {
	case due.IsZero(): // nobody waits
		l.looked = false
		l.mu.Unlock()
		return
	case due.After(now):
		l.looked = false
		l.setTimerLocked(due)
		l.mu.Unlock()
		return
	case !l.looked:
		l.looked = true
		l.setTimerLocked(now.Add(grace))
		l.mu.Unlock()
		return
	}
	l.looked = false
	if !away.IsZero() && !away.After(now) {
		c := l.client
		l.mu.Unlock()
		if c == nil {
			l.giveUp()
			return
		}
		l.fail(c, &failure{Timeout, fmt.Errorf("no answer within %v", l.options.Timeout)})
		return
	}
	late := l.lateLocked(now)
	if due, _ = l.dueLocked(); !due.IsZero() {
		l.setTimerLocked(due)
	}
	l.mu.Unlock()
	l.fallBack(late)
}

// dueLocked returns when the next of those who wait has waited long enough, zero if nobody waits; and when
// the lane is away unless the server says something: it has said nothing for the timeout then, though
// something waits for it. One call's deadline says nothing of the store.
func (l *lane) dueLocked() (due, away time.Time) {
	oldest := time.Time{}
	for _, since := range l.sending {
		if !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	if len(l.queue) > 0 && (oldest.IsZero() || l.queue[0].since.Before(oldest)) {
		oldest = l.queue[0].since
	}
	if !oldest.IsZero() && (l.client != nil || l.fresh) {
		if l.heard.After(oldest) {
			oldest = l.heard
		}
		away = oldest.Add(l.options.Timeout)
		due = away
	}
	for a := l.open.first; a != nil; a = a.next {
		if due.IsZero() || a.until.Before(due) {
			due = a.until
		}
	}
	return due, away
}

// lateLocked takes those from the lane who have waited long enough. What no sender has taken is not sent
// any more.
func (l *lane) lateLocked(now time.Time) (late []*ask) {
	for a := l.open.first; a != nil; {
		following := a.next
		if !a.until.After(now) {
			l.open.remove(a)
			late = append(late, a)
		}
		a = following
	}
	isLate := func(a *ask) bool { return !a.isOpen }
	l.queue, l.bulk = slices.DeleteFunc(l.queue, isLate), slices.DeleteFunc(l.bulk, isLate)
	return late
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
	clear(l.bulk)
	l.queue, l.bulk = l.queue[:0], l.bulk[:0]
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
			l.options.tell(a.waiter, ErrAway)
		default:
			now := l.fleet.time(a.now)
			err := l.options.fallBack(now, a.batch)
			if err == nil && l.options.Fallback.owes() {
				l.options.guard(func() { l.fleet.owesAsk(now, a) })
			}
			l.options.tell(a.waiter, err)
		}
	}
}
