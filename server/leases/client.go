package leases

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Connection is a client's connection, over which it makes calls that acquire and return leases.
type Connection struct {
	Addr        net.Addr // address of the client, for errors; optional
	lessor      *Lessor
	client      *client
	number      uint64            // number of the connection among those of its client
	calls       map[uint32]*lease // granted leases, by the stream of the call
	closeReason CloseReason       // set once it is closed
	closed      bool
	used        bool // whether calls on it acquired or returned leases
}

// CloseReason is how a connection was closed.
type CloseReason byte

const (
	// Graceful means closed by the server, or after a GOAWAY. The client is alive.
	Graceful CloseReason = iota
	// AfterReply means closed by the client right after a reply. An Envoy that makes a limited
	// number of requests per connection closes connections this way, and sometimes one that is
	// killed does.
	AfterReply
	// Abrupt means closed by the client without a preceding reply.
	Abrupt
	// Unresponsive means closed by the server because the client did not answer a ping. The client
	// is dead.
	Unresponsive
)

// client is a client with its connections.
type client struct {
	name      string
	presence  presence
	open      int                      // number of open connections
	closed    map[*Connection]struct{} // closed connections with granted leases
	opened    uint64                   // number of connections that it has opened
	suspicion suspicion
	evidence
}

// presence is whether a client is connected. The package page draws its transitions.
type presence byte

const (
	connected presence = iota
	// disconnected: no connection. The leases stay.
	disconnected
	// condemned: no connection, and the client seems dead. Its leases are revoked after the grace
	// period.
	condemned
)

// suspicion records that a client seems dead because of a closed connection.
type suspicion struct {
	since  limiter.Time // 0 if the client is trusted
	opened uint64       // client.opened at that time: calls on later connections are signs of life
}

// maxClients is the number of clients without connections and leases that are remembered.
const maxClients = 1024

// Connect opens a connection of the client with the given name. Connections with the same name
// belong to the same client.
func (t *Lessor) Connect(name string) *Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.clients[name]
	if p == nil {
		p = &client{name: name, closed: map[*Connection]struct{}{}}
		t.clients[name] = p
	}
	p.presence = connected
	p.open++
	p.opened++
	return &Connection{lessor: t, client: p, number: p.opened}
}

// RecordCall records a call that acquires or returns leases, on the connection c, which is nil if
// unknown.
func (t *Lessor) RecordCall(c *Connection, now limiter.Time) {
	for latest := t.latestCall.Load(); int64(now) > latest && !t.latestCall.CompareAndSwap(latest, int64(now)); {
		latest = t.latestCall.Load()
	}
	if c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.used = true
	c.client.learnFromCallLocked(c, now, t.busyGap())
	if c.number > c.client.suspicion.opened {
		c.client.suspicion.since = 0
	}
}

// Close closes the connection, which has served the given number of calls.
func (c *Connection) Close(how CloseReason, calls uint32) {
	t := c.lessor
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := c.client
	c.closed, c.closeReason = true, how
	if p.open--; len(c.calls) > 0 {
		p.closed[c] = struct{}{}
	}
	if c.used {
		switch {
		case how == Graceful:
			p.suspicion.since = 0
		case how == Unresponsive, t.seemsDeadLocked(p, now, how, calls):
			p.suspicion = suspicion{since: max(now, 1), opened: p.opened}
		}
		p.learnFromCloseLocked(now, how, calls)
	}
	if p.open > 0 {
		return
	}
	p.presence = disconnected
	if len(p.closed) == 0 {
		t.forgetClientLocked(p)
		return
	}
	if grace := t.options.Grace; grace > 0 && p.suspicion.since > 0 && now-p.suspicion.since <= limiter.Time(grace) {
		p.presence = condemned
		opened := p.opened
		time.AfterFunc(grace, func() { t.revokeClient(p, opened) })
	}
}

// revokeClient revokes the leases of a client that was condemned, unless it has opened a connection
// since.
func (t *Lessor) revokeClient(p *client, opened uint64) {
	defer t.recoverPanic()
	t.revokeMany(t.endClient(p, opened), clientDead, func() {})
}

// endClient ends the leases of a condemned client and returns them as a list. It returns nil if the
// client has opened a connection since opened, the value of client.opened at that time.
func (t *Lessor) endClient(p *client, opened uint64) (list *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.opened != opened {
		return nil
	}
	p.presence = disconnected
	if len(p.closed) > 0 {
		p.revoked = map[Key]struct{}{}
	}
	for c := range p.closed {
		for _, l := range c.calls {
			for l != nil {
				next := l.sibling
				if len(p.revoked) < maxRevoked {
					p.revoked[l.Key] = struct{}{}
				}
				t.endLocked(l, clientDead)
				l.sibling, list = list, l
				l = next
			}
		}
	}
	return list
}

// forgetClientLocked removes a client that has neither connections nor leases, unless it has
// evidence about the client. If p was removed before, another client may have its name now.
func (t *Lessor) forgetClientLocked(p *client) {
	if t.clients[p.name] == p && p.presence != connected && len(p.closed) == 0 && (!p.dropsConnections && len(p.revoked) == 0 || len(t.clients) > maxClients) {
		delete(t.clients, p.name)
	}
}

// ResetCall revokes the leases of an answered call that the client has reset. It will not return
// them, and a request for which hits were reserved has not begun. The connection is nil if it has
// had no call.
func (c *Connection) ResetCall(stream uint32) {
	if c == nil {
		return
	}
	if l := c.endCall(stream); l != nil {
		c.lessor.revoke(l, callReset)
	}
}

// endCall ends the leases of a call and returns them as a list.
func (c *Connection) endCall(stream uint32) (list *lease) {
	c.lessor.mu.Lock()
	defer c.lessor.mu.Unlock()
	for l := c.calls[stream]; l != nil; l = c.calls[stream] {
		c.lessor.endLocked(l, callReset)
		l.sibling, list = list, l
	}
	return list
}

// addLocked adds a lease that was granted to a call on the connection.
func (c *Connection) addLocked(l *lease) {
	if c.calls == nil {
		c.calls = map[uint32]*lease{}
	}
	l.sibling = c.calls[l.Stream]
	c.calls[l.Stream] = l
	if c.closed { // a store decided the call after the close
		c.client.closed[c] = struct{}{}
	}
}

// removeLocked removes a lease that has ended.
func (c *Connection) removeLocked(l *lease) {
	first := c.calls[l.Stream]
	switch {
	case first == l && l.sibling == nil:
		delete(c.calls, l.Stream)
	case first == l:
		c.calls[l.Stream] = l.sibling
	default:
		for first.sibling != l {
			first = first.sibling
		}
		first.sibling = l.sibling
	}
	l.sibling = nil
	if c.closed && len(c.calls) == 0 {
		delete(c.client.closed, c)
		c.lessor.forgetClientLocked(c.client)
	}
}
