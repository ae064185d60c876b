package grpcgo

import (
	"net"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// listener wraps a listener. All its connections count as busy, because grpc-go does not report
// idle ones.
type listener struct {
	net.Listener

	handler *answer.Handler
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
	return &clientConn{Conn: conn, handler: l.handler}, nil
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

// clientConn reports a client that begins with HTTP/1. grpc-go closes its connection.
type clientConn struct {
	net.Conn

	handler *answer.Handler
	begun   bool // whether the client has sent something
}

// Read implements [net.Conn].
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.begun && n > 0 {
		c.begun = true
		if yes, _ := transport.SpeaksHTTP1(p[:n]); yes {
			c.handler.Metrics.ClientErrors.HTTPOnGRPC.Report(c.handler.Rare, c.RemoteAddr())
		}
	}
	return n, err
}
