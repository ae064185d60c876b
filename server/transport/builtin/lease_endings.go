package builtin

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/server/leases"
)

// maxCloseDelay is the longest time between the last reply and the close of a connection that its
// client closes after a fixed number of calls.
const maxCloseDelay = 250 * time.Millisecond

// clientName returns a name of the client: all connections from one IP address are taken for those
// of one Envoy, and so are all connections of Unix sockets.
func clientName(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.Network()
}

// endingLocked returns why the connection, which is closed, has ended. A client that sent a GOAWAY is
// another program than Envoy, and ended the connection gracefully.
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
