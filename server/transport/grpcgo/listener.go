package grpcgo

import (
	"net"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// listener is a listener whose connections all count as used: grpc-go does not report which are idle.
type listener struct {
	net.Listener

	handshakes *handshakes
}

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if bounded, ok := conn.(transport.BoundedConn); ok {
		bounded.ServedBy(busyConn{conn})
	}
	return &handshakeConn{conn, l.handshakes}, nil
}

// busyConn is a connection that a full listener ends only for a client with fewer connections.
type busyConn struct{ net.Conn }

// Usage implements [transport.Served].
func (busyConn) Usage() transport.Usage { return transport.Usage{Busy: true, Used: true} }

// Retire implements [transport.Served]. A connection that ends gently is closed by the second call.
func (b busyConn) Retire(gently bool) {
	if !gently {
		_ = b.Close() // an error changes nothing: the connection is gone
	}
}

// handshakes are the connections whose clients have not finished the handshake of TLS and the preface of HTTP/2. GracefulStop and Stop
// of grpc-go wait for them before they do anything else, for as long as --connection-timeout.
type handshakes struct {
	mu       sync.Mutex
	open     map[*handshakeConn]struct{}
	deadline time.Time // when they end at the latest; zero while the server does not stop
}

// setDeadline has all connections that have not begun end by the given time, also those that come later.
func (b *handshakes) setDeadline(ends time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = ends
	for c := range b.open {
		_ = c.Conn.SetDeadline(ends) // an error changes nothing: the connection is gone
	}
}

// handshakeConn is a connection of beginnings.
type handshakeConn struct {
	net.Conn

	handshakes *handshakes
}

// SetDeadline implements [net.Conn]. grpc-go sets a deadline before the handshake of TLS, and none after the preface.
func (c *handshakeConn) SetDeadline(t time.Time) error {
	b := c.handshakes
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.IsZero() {
		delete(b.open, c)
		return c.Conn.SetDeadline(t)
	}
	if b.open == nil {
		b.open = map[*handshakeConn]struct{}{}
	}
	b.open[c] = struct{}{}
	if !b.deadline.IsZero() && t.After(b.deadline) {
		t = b.deadline
	}
	return c.Conn.SetDeadline(t)
}
