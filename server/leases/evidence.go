package leases

import "github.com/sluice-ratelimit/sluice/limiter"

// evidence records behaviour of a client that shows whether a closed connection means its death.
type evidence struct {
	// The client closed its last connection at closedAt, after lastCalls calls. maxCalls is the
	// maximum of all connections.
	closedAt            limiter.Time
	lastCalls, maxCalls uint32

	busySince, calledAt limiter.Time // first and last call of the current series without a busyGap

	// afterReply is the value of client.opened when the client last closed a connection after a
	// reply. If it makes calls on a later connection, it makes a limited number of calls per
	// connection, and replacesConnections is set.
	afterReply          uint64
	replacesConnections bool

	// revoked contains leases that were revoked because the client seemed dead. dropsConnections is
	// set if the client returns one of them, or a lease of a connection that it has closed
	// abruptly: then its requests outlive its connections.
	revoked          map[Key]struct{}
	dropsConnections bool
}

// maxRevoked bounds evidence.revoked. A client whose requests outlive its connections returns all
// of its leases, so a few suffice.
const maxRevoked = 64

// busyGap returns the longest time between calls of a busy client.
func (t *Lessor) busyGap() limiter.Time { return limiter.Time(t.options.Grace / 4) }

func (p *client) learnFromCallLocked(c *Connection, now, pause limiter.Time) {
	if now-p.calledAt > pause {
		p.busySince = now
	}
	p.calledAt = max(p.calledAt, now)
	if p.afterReply > 0 && c.number > p.afterReply {
		p.replacesConnections = true
	}
}

// learnFromReturnLocked learns from a returned lease. l is nil if it is no longer granted.
func (p *client) learnFromReturnLocked(k Key, l *lease) {
	if l == nil {
		_, was := p.revoked[k]
		p.dropsConnections = p.dropsConnections || was
	} else if c := l.Connection; c != nil && c.client == p && c.closed && c.closeReason == Abrupt {
		p.dropsConnections = true
	}
}

func (p *client) learnFromCloseLocked(now limiter.Time, how CloseReason, calls uint32) {
	if how != Graceful {
		p.closedAt, p.lastCalls, p.maxCalls = now, calls, max(p.maxCalls, calls)
	}
	if how == AfterReply {
		p.afterReply = p.opened
	}
}

// busyLocked reports whether the client called without a busyGap for so long that silence for the
// grace period means that it is dead.
func (t *Lessor) busyLocked(p *client, now limiter.Time) bool {
	return now-p.calledAt <= t.busyGap() && p.calledAt-p.busySince >= limiter.Time(4*t.options.Grace)
}

// seemsDeadLocked reports whether a client that has closed a connection after the given number of
// calls seems to be dead. A client that makes a fixed number of calls per connection does not close
// one earlier, nor two at about the same time after different numbers.
func (t *Lessor) seemsDeadLocked(p *client, now limiter.Time, how CloseReason, calls uint32) bool {
	switch {
	case p.dropsConnections:
		return false
	case calls < p.maxCalls, p.closedAt > 0 && calls > p.lastCalls && now-p.closedAt <= limiter.Time(t.options.Grace):
		return true
	case p.replacesConnections:
		return false
	}
	return how == Abrupt || t.busyLocked(p, now)
}
