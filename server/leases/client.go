package leases

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Connection is a connection over which a client acquires and returns leases.
type Connection struct {
	Addr        net.Addr // address of the client, for errors; optional
	lessor      *Lessor
	client      *client
	number      uint64            // value of client.opened when it was opened
	calls       map[uint32]*lease // first granted lease of each call, by stream
	closeReason CloseReason       // set once it is closed
	closed      bool
	used        bool // whether calls on it acquired or returned leases
}

// CloseReason is how a connection was closed.
type CloseReason byte

const (
	// Graceful means closed by the server, or after a GOAWAY. The client is alive.
	Graceful CloseReason = iota
	// AfterReply means closed by the client right after a reply. An Envoy with a limited number of
	// requests per connection closes connections this way. So does, at times, an Envoy that is
	// killed.
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
	// disconnected means that the client has no connection. It keeps its leases.
	disconnected
	// condemned means that the client has no connection and seems dead. Its leases are revoked
	// after the grace period.
	condemned
)

// suspicion records that a client seems dead because of a closed connection.
type suspicion struct {
	since  limiter.Time // 0 if the client is trusted
	opened uint64       // client.opened at that time; a call on a later connection clears the suspicion
}

// maxClients is the number of clients above which clients without connections and leases are
// forgotten.
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

// RecordCall records a call that acquires or returns leases. c is the connection of the call, nil
// if unknown.
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

// Close records that the connection was closed for the given reason after the given number of
// calls.
func (c *Connection) Close(reason CloseReason, calls uint32) {
	t := c.lessor
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := c.client
	c.closed = true
	c.closeReason = reason
	if p.open--; len(c.calls) > 0 {
		p.closed[c] = struct{}{}
	}
	if c.used {
		switch {
		case reason == Graceful:
			p.suspicion.since = 0
		case reason == Unresponsive, t.seemsDeadLocked(p, now, reason, calls):
			p.suspicion = suspicion{since: max(now, 1), opened: p.opened}
		}
		p.learnFromCloseLocked(now, reason, calls)
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

// revokeClient revokes the leases of a condemned client, unless it has opened a connection since
// then.
func (t *Lessor) revokeClient(p *client, opened uint64) {
	defer t.recoverPanic()
	t.revokeMany(t.endClient(p, opened), clientDead, func() {})
}

// endClient ends the leases of a condemned client and returns them as a list. opened is the value
// of client.opened when the client was condemned. If the client has opened a connection since then,
// endClient returns nil.
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
				l.sibling = list
				list = l
				l = next
			}
		}
	}
	return list
}

// forgetClientLocked removes a client that has neither connections nor leases, unless its evidence
// may still be needed. If p was removed before, another client may have its name now.
func (t *Lessor) forgetClientLocked(p *client) {
	if t.clients[p.name] == p && p.presence != connected && len(p.closed) == 0 &&
		(!p.dropsConnections && len(p.revoked) == 0 || len(t.clients) > maxClients) {
		delete(t.clients, p.name)
	}
}

// ResetCall revokes the leases of an answered call that the client has reset. The client will not
// return them, and a request for which hits were reserved has not begun. c is nil if there was no
// call on the connection.
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
		l.sibling = list
		list = l
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
