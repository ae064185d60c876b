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

	beginnings *beginnings
}

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if bounded, ok := conn.(transport.Bounded); ok {
		bounded.ServedBy(busy{conn})
	}
	return &beginning{conn, l.beginnings}, nil
}

// busy is a connection that a full listener ends only for a client with fewer connections.
type busy struct{ net.Conn }

// Usage implements [transport.Served].
func (busy) Usage() transport.Usage { return transport.Usage{Busy: true, Used: true} }

// Retire implements [transport.Served]. A connection that ends gently is closed by the second call.
func (b busy) Retire(gently bool) {
	if !gently {
		_ = b.Close() // an error changes nothing: the connection is gone
	}
}

// beginnings are the connections whose clients have not finished the handshake of TLS and the preface of HTTP/2. GracefulStop and Stop
// of grpc-go wait for them before they do anything else, for as long as --connection-timeout.
type beginnings struct {
	mu   sync.Mutex
	open map[*beginning]struct{}
	ends time.Time // when they end at the latest; zero while the server does not stop
}

// endBy has all connections that have not begun end by the given time, also those that come later.
func (b *beginnings) endBy(ends time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = ends
	for c := range b.open {
		_ = c.Conn.SetDeadline(ends) // an error changes nothing: the connection is gone
	}
}

// beginning is a connection of beginnings.
type beginning struct {
	net.Conn

	all *beginnings
}

// SetDeadline implements [net.Conn]. grpc-go sets a deadline before the handshake of TLS, and none after the preface.
func (c *beginning) SetDeadline(t time.Time) error {
	b := c.all
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.IsZero() {
		delete(b.open, c)
		return c.Conn.SetDeadline(t)
	}
	if b.open == nil {
		b.open = map[*beginning]struct{}{}
	}
	b.open[c] = struct{}{}
	if !b.ends.IsZero() && t.After(b.ends) {
		t = b.ends
	}
	return c.Conn.SetDeadline(t)
}
