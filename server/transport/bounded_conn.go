package transport

import (
	"net"
	"time"
)

// Usage describes the use of a connection. A full listener closes the connection with the least use
// to accept another.
type Usage struct {
	Busy  bool          // it has open calls
	Used  bool          // it has had a call
	Since time.Duration // when it became idle, or was accepted; a time of the clock
}

// BoundedConn is a connection of a listener with a maximum number of connections.
type BoundedConn interface {
	net.Conn
	// ServedBy sets the server of the connection. Without one, the listener regards the connection
	// as unused.
	ServedBy(s Served)
	// EndHandshake must be called after a TLS handshake, unless the deadlines are removed then.
	EndHandshake()
}

// Served is the server of a [BoundedConn]. Its methods may be called concurrently.
type Served interface {
	Usage() Usage
	// Retire closes the connection, so that another can be accepted: gracefully, after its calls
	// were answered, or at once.
	Retire(gently bool)
}
