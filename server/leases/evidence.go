package leases

import "github.com/sluice-ratelimit/sluice/limiter"

// evidence is what the connections and calls of a client say about whether it dies when a connection ends.
type evidence struct {
	// It closed the last connection at closedAt, after lastCalls calls. The most calls on one were maxCalls.
	closedAt            limiter.Time
	lastCalls, maxCalls uint32

	busySince, calledAt limiter.Time // first and last of the calls that came without a pause

	// afterReply is what client.opened was when it last closed a connection after a reply. It replaces connections if it has
	// made calls on a later one: then it makes a limited number of calls on each.
	afterReply          uint64
	replacesConnections bool

	// revoked are leases that were revoked because it seemed dead. If it returns one of them, or one of a connection that it
	// has closed abruptly, it drops connections: it closes them while the requests live on that hold leases of them.
	revoked          map[Key]struct{}
	dropsConnections bool
}

// maxRevoked is the largest number of leases in evidence.revoked. A client whose requests live on returns all of them.
const maxRevoked = 64

// pause is the time after which a client that makes no call is not busy.
func (t *Lessor) pause() limiter.Time { return limiter.Time(t.options.Grace / 4) }

func (p *client) learnFromCallLocked(c *Connection, now, pause limiter.Time) {
	if now-p.calledAt > pause {
		p.busySince = now
	}
	p.calledAt = max(p.calledAt, now)
	if p.afterReply > 0 && c.number > p.afterReply {
		p.replacesConnections = true
	}
}

// learnFromReturnLocked learns from a lease that the client has returned, which is nil if it had ended.
func (p *client) learnFromReturnLocked(k Key, l *lease) {
	if l == nil {
		_, was := p.revoked[k]
		p.dropsConnections = p.dropsConnections || was
	} else if c := l.Connection; c != nil && c.client == p && c.closed && c.ending == Abrupt {
		p.dropsConnections = true
	}
}

func (p *client) learnFromCloseLocked(now limiter.Time, how Ending, calls uint32) {
	if how != Graceful {
		p.closedAt, p.lastCalls, p.maxCalls = now, calls, max(p.maxCalls, calls)
	}
	if how == AfterReply {
		p.afterReply = p.opened
	}
}

// busyLocked reports whether a client has made calls without a pause for so long that it is dead if it makes none within
// the grace.
func (t *Lessor) busyLocked(p *client, now limiter.Time) bool {
	return now-p.calledAt <= t.pause() && p.calledAt-p.busySince >= limiter.Time(4*t.options.Grace)
}

// seemsDeadLocked reports whether a client that has closed a connection after the given number of calls seems to be dead. One
// that makes a certain number of calls on each closes none after fewer, nor two at once after different numbers.
func (t *Lessor) seemsDeadLocked(p *client, now limiter.Time, how Ending, calls uint32) bool {
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
