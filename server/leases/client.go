package leases

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Connection is one of a client, over which calls are made that take leases.
type Connection struct {
	Addr   net.Addr // of the client, for errors; optional
	lessor *Lessor
	client *client
	number uint64            // of the connections of its client
	calls  map[uint32]*lease // granted leases, by the stream of their call
	ending Ending            // once it is closed
	closed bool
	used   bool // it had calls that had to do with leases
}

// Ending is how a connection has ended.
type Ending byte

const (
	// Graceful is by the server, or after a GOAWAY. The client lives.
	Graceful Ending = iota
	// AfterReply is by the client as soon as it had a reply. So end the connections of an Envoy that makes a limited
	// number of requests on each, and sometimes those of one that is killed.
	AfterReply
	// Abrupt is by the client while it waits for nothing.
	Abrupt
	// Unresponsive is by the server, because the client did not answer a ping. The client is dead.
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

// presence is whether a client is there. The package page draws its transitions.
type presence byte

const (
	connected presence = iota
	// disconnected clients have no connection. Their leases stay.
	disconnected
	// condemned clients have no connection and seem dead. Their leases are revoked after the grace.
	condemned
)

// A suspicion is that a client seems dead, because of how a connection has ended.
type suspicion struct {
	since  limiter.Time // 0 if the client is trusted
	opened uint64       // what client.opened was then: calls on later connections are signs of life
}

// maxClients is the number of clients without connections and leases that are remembered.
const maxClients = 1024

// Connect opens a connection of the client with the given name. Connections of one name are taken to be of one client.
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

// NoteCall notes that a client has made a call that has to do with leases, over the connection c, nil if that is not known.
func (t *Lessor) NoteCall(c *Connection, now limiter.Time) {
	for latest := t.latest.Load(); int64(now) > latest && !t.latest.CompareAndSwap(latest, int64(now)); {
		latest = t.latest.Load()
	}
	if c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.used = true
	c.client.learnFromCallLocked(c, now, t.pause())
	if c.number > c.client.suspicion.opened {
		c.client.suspicion.since = 0
	}
}

// Close closes the connection, on which the given number of calls was made.
func (c *Connection) Close(how Ending, calls uint32) {
	t := c.lessor
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := c.client
	c.closed, c.ending = true, how
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

// revokeClient revokes the leases of a client that was condemned, unless it has opened a connection since.
func (t *Lessor) revokeClient(p *client, opened uint64) {
	defer t.recovered()
	t.revokeMany(t.endClient(p, opened), clientDead, func() {})
}

// endClient ends the leases of a client that was condemned and returns them as a list. Opened is what client.opened was then.
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

// forgetClientLocked forgets a client that has neither connections nor leases, unless something was learnt of it. If it
// has been forgotten before, another client may have its name now.
func (t *Lessor) forgetClientLocked(p *client) {
	if t.clients[p.name] == p && p.presence != connected && len(p.closed) == 0 && (!p.dropsConnections && len(p.revoked) == 0 || len(t.clients) > maxClients) {
		delete(t.clients, p.name)
	}
}

// ResetCall revokes the leases of a call that was answered on the connection, which is nil if it has had no call. The
// client has reset the call, so it will not return them: a request that was reserved for has not begun.
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
	if c.closed { // a store has decided the call since
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
