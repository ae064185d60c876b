package builtin

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/server/leases"
)

// mostFarewell is how long after its last call a connection ends at most whose client makes only so many calls on one:
// it does so as soon as it has the reply.
const mostFarewell = 250 * time.Millisecond

// clientName names the client at an address: connections from one address are taken to be those of one Envoy. All
// clients at a Unix socket have one name.
func clientName(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.Network()
}

// howLocked says how the connection has ended, once its client or we have closed it. Envoy never sends a GOAWAY.
func (c *connection) howLocked() leases.Ending {
	switch {
	case c.deaf.Load():
		return leases.Unresponsive
	case c.ending, c.ours.Load(), c.h2.Draining(), c.h2.GoneAway():
		return leases.Graceful
	case c.Handler.Clock.Elapsed()-time.Duration(c.watched.calledAt.Load()) <= mostFarewell:
		return leases.AfterReply
	}
	return leases.Abrupt
}
