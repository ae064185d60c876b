package grpcgo

import (
	"net"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// listener wraps a listener. All its connections count as busy, because grpc-go does not report
// idle ones.
type listener struct {
	net.Listener

	handshakes *handshakes
	handler    *answer.Handler
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
	return &handshakeConn{Conn: conn, handshakes: l.handshakes, handler: l.handler}, nil
}

// busyConn is a connection that a full listener closes only in favor of a client with fewer
// connections.
type busyConn struct{ net.Conn }

// Usage implements [transport.Served].
func (busyConn) Usage() transport.Usage { return transport.Usage{Busy: true, Used: true} }

// Retire implements [transport.Served]. It cannot drain the connection: only a call that is not
// gentle closes it.
func (b busyConn) Retire(gently bool) {
	if !gently {
		_ = b.Close() // an error means that it is closed already
	}
}

// handshakes are the connections that have not finished the TLS handshake and the HTTP/2 preface.
// grpc-go's GracefulStop and Stop first wait for them, up to Limits.ConnectionTimeout.
type handshakes struct {
	mu       sync.Mutex
	open     map[*handshakeConn]struct{}
	deadline time.Time // zero while the server is running
}

// setDeadline limits the current and all later handshakes.
func (b *handshakes) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = t
	for c := range b.open {
		_ = c.Conn.SetDeadline(t) // an error means that it is closed already
	}
}

// handshakeConn is a connection of handshakes.
type handshakeConn struct {
	net.Conn

	handshakes *handshakes
	handler    *answer.Handler
	begun      bool // whether the client has sent something
}

// Read implements [net.Conn]. It reports a client that begins with HTTP/1. grpc-go closes its
// connection.
func (c *handshakeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.begun && n > 0 {
		c.begun = true
		if yes, _ := transport.SpeaksHTTP1(p[:n]); yes {
			c.handler.Metrics.ClientErrors.HTTPOnGRPC.Report(c.handler.Rare, c.RemoteAddr())
		}
	}
	return n, err
}

// SetDeadline implements [net.Conn]. grpc-go sets a deadline before the TLS handshake, and removes
// it after the preface.
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
