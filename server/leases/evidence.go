package leases

import "github.com/sluice-ratelimit/sluice/limiter"

// evidence records behaviour of a client that shows whether a closed connection means its death.
type evidence struct {
	// The client closed its last connection at closedAt, after lastCalls calls. maxCalls is the
	// maximum of all connections.
	closedAt            limiter.Time
	lastCalls, maxCalls uint32

	busySince, calledAt limiter.Time // first and last call of the current series of calls without a gap of more than busyGap

	// afterReply is the value of client.opened when the client last closed a connection after a
	// reply. A call on a later connection shows that the client makes a limited number of calls per
	// connection, and sets replacesConnections.
	afterReply          uint64
	replacesConnections bool

	// revoked contains leases that were revoked because the client seemed dead. dropsConnections is
	// set if the client returns one of these leases, or one of a connection that it has closed
	// abruptly. It means that the client's requests outlive its connections.
	revoked          map[Key]struct{}
	dropsConnections bool
}

// maxRevoked bounds evidence.revoked. A client whose requests outlive its connections returns all
// of its leases, so a few suffice.
const maxRevoked = 64

// busyGap returns the longest time between calls of a busy client.
func (t *Lessor) busyGap() limiter.Time { return limiter.Time(t.options.Grace / 4) }

func (p *client) learnFromCallLocked(c *Connection, now, busyGap limiter.Time) {
	if now-p.calledAt > busyGap {
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
		_, wasRevoked := p.revoked[k]
		p.dropsConnections = p.dropsConnections || wasRevoked
	} else if c := l.Connection; c != nil && c.client == p && c.closed && c.closeReason == Abrupt {
		p.dropsConnections = true
	}
}

func (p *client) learnFromCloseLocked(now limiter.Time, reason CloseReason, calls uint32) {
	if reason != Graceful {
		p.closedAt = now
		p.lastCalls = calls
		p.maxCalls = max(p.maxCalls, calls)
	}
	if reason == AfterReply {
		p.afterReply = p.opened
	}
}

// busyLocked reports whether a client that is silent for the grace period must be dead: its calls
// had no gap of more than busyGap for at least four grace periods, until now.
func (t *Lessor) busyLocked(p *client, now limiter.Time) bool {
	return now-p.calledAt <= t.busyGap() && p.calledAt-p.busySince >= limiter.Time(4*t.options.Grace)
}

// seemsDeadLocked reports whether a client that has closed a connection after the given number of
// calls seems to be dead. A client that makes a fixed number of calls per connection does not close
// one earlier, nor two at about the same time after different numbers.
func (t *Lessor) seemsDeadLocked(p *client, now limiter.Time, reason CloseReason, calls uint32) bool {
	switch {
	case p.dropsConnections:
		return false
	case calls < p.maxCalls, p.closedAt > 0 && calls > p.lastCalls && now-p.closedAt <= limiter.Time(t.options.Grace):
		return true
	case p.replacesConnections:
		return false
	}
	return reason == Abrupt || t.busyLocked(p, now)
}
