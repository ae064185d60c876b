package builtin

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/server/leases"
)

// maxCloseDelay is the longest time between the last reply and the close, for a client that makes a
// fixed number of calls on each connection and then closes it.
const maxCloseDelay = 250 * time.Millisecond

// clientName returns a name of the client: all connections from one IP address are taken for those
// of one Envoy, and so are all connections of Unix sockets.
func clientName(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.Network()
}

// endingLocked returns how the connection has ended, once it is closed. Envoy never sends a GOAWAY.
func (c *connection) endingLocked() leases.CloseReason {
	switch {
	case c.pingTimedOut.Load():
		return leases.Unresponsive
	case c.ending, c.closedByUs.Load(), c.h2.Draining(), c.h2.GotGoAway():
		return leases.Graceful
	case c.Handler.Clock.Elapsed()-time.Duration(c.activity.lastCallAt.Load()) <= maxCloseDelay:
		return leases.AfterReply
	}
	return leases.Abrupt
}
