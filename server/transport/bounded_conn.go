package transport

import (
	"net"
	"time"
)

// Usage is the use of a connection, by which a full listener chooses the one that makes room for another.
type Usage struct {
	Busy  bool          // a call is open on it
	Used  bool          // a call was made on it
	Since time.Duration // time of the clock at which it became idle, or of its beginning
}

// BoundedConn is a connection of a listener that bounds its connections.
type BoundedConn interface {
	net.Conn
	// ServedBy registers what serves the connection. Without that, the listener takes it for unused.
	ServedBy(s Served)
}

// Served is the serving side of a connection of a bounded listener. Its methods may be called concurrently.
type Served interface {
	Usage() Usage
	// Retire ends the connection to make room for another: if gently, after the client has learnt of it and its
	// calls are answered, and otherwise at once.
	Retire(gently bool)
}
