package store

import (
	"fmt"
	"time"
)

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
			l.options.tell(a.waiter, l.options.fallBack(l.fleet.time(a.now), a.batch))
		}
	}
}
