package server

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// defaultRetireTimeout is the time limit for a graceful close. maxRetiring bounds the number of
// connections that are closing gracefully; these are in addition to the listener's maximum.
const (
	defaultRetireTimeout = 2 * time.Second
	maxRetiring          = 64
)

// boundedListener bounds the open connections of a listener and gives each client address a fair
// share. At the bound, it closes an idle connection to admit a new one; see [compareRanks]. A
// client therefore cannot exclude probes, scrapes and other proxies with connections that it does
// not use.
type boundedListener struct {
	net.Listener
	max           int
	elapsed       func() time.Duration
	retireTimeout time.Duration      // time limit for a graceful close
	rejected      prometheus.Counter // connections closed because of the bound
	current       prometheus.Gauge   // number of open connections; optional
	tokens        *cpu.Tokens        // for handshakes; nil without TLS

	mu        sync.Mutex
	open      map[*boundedConn]struct{}
	byAddress map[netip.Addr]int // number of open connections
	retiring  []*boundedConn     // connections that are closing gracefully, the oldest first
	surplus   surplus
}

// boundedConn is a connection of a boundedListener.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	address  netip.Addr
	openedAt time.Duration
	once     sync.Once
	served   transport.Served // protected by listener.mu; nil until it is served
}

var _ transport.BoundedConn = (*boundedConn)(nil)

// Accept returns the next connection within the bound.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{
			Conn: conn, listener: l, address: access.AddressOfPeer(conn.RemoteAddr()), openedAt: l.elapsed(),
		}
		if l.tokens != nil {
			c.Conn = l.tokens.NewConn(conn, c.address)
		}
		if l.admit(c) {
			return c, nil
		}
		l.rejected.Inc()
		_ = conn.Close() // ignored: the connection is rejected
	}
}

// clientAddress is [access.AddressOfPeer] for the client of a request.
func clientAddress(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // a Unix socket
	}
	return access.AddressOf(addr.Addr())
}

// admit counts c as open if the bound allows it, possibly after closing another connection, and
// reports whether it did.
func (l *boundedListener) admit(c *boundedConn) bool {
	l.mu.Lock()
	var retired, oldest *boundedConn
	gracefully := false
	if len(l.open) >= l.max {
		if retired, gracefully = l.pickSurplusLocked(c); retired == nil {
			l.mu.Unlock()
			return false
		}
		l.removeLocked(retired)
		if gracefully {
			oldest = l.retireLocked(retired)
		}
	}
	if l.open == nil {
		l.open = map[*boundedConn]struct{}{}
		l.byAddress = map[netip.Addr]int{}
	}
	l.open[c] = struct{}{}
	l.byAddress[c.address]++
	l.mu.Unlock()
	if l.current != nil {
		l.current.Inc()
	}
	if retired != nil {
		l.rejected.Inc()
		retired.retire(gracefully)
	}
	if oldest != nil {
		oldest.retire(false)
	}
	return true
}

// removeLocked stops counting c as an open connection.
func (l *boundedListener) removeLocked(c *boundedConn) {
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	if l.byAddress[c.address]--; l.byAddress[c.address] == 0 {
		delete(l.byAddress, c.address)
	}
}

// retireLocked adds c to the connections that are closing gracefully. If there are too many of
// these, it returns the oldest one, which the caller must close immediately.
func (l *boundedListener) retireLocked(c *boundedConn) (oldest *boundedConn) {
	if len(l.retiring) >= min(max(l.max/16, 1), maxRetiring) {
		oldest = l.retiring[0]
		l.retiring = l.retiring[1:]
	}
	l.retiring = append(l.retiring, c)
	return oldest
}

// ServedBy implements [transport.Bounded].
func (c *boundedConn) ServedBy(s transport.Served) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.served = s
}

// usageLocked returns the usage of the connection.
func (c *boundedConn) usageLocked() transport.Usage {
	if c.served == nil {
		return transport.Usage{Since: c.openedAt}
	}
	return c.served.Usage()
}

// retire closes the connection. It must be called without the lock.
func (c *boundedConn) retire(gracefully bool) {
	c.listener.mu.Lock()
	served := c.served
	c.listener.mu.Unlock()
	if served == nil {
		_ = c.Close() // ignored: the connection is not served yet
		return
	}
	served.Retire(gracefully)
	if gracefully {
		time.AfterFunc(c.listener.retireTimeout, func() { served.Retire(false) })
	}
}

// Close closes the connection and stops counting it.
func (c *boundedConn) Close() error {
	c.once.Do(func() {
		l := c.listener
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeLocked(c)
		for i, other := range l.retiring {
			if other == c {
				l.retiring = append(l.retiring[:i], l.retiring[i+1:]...)
				break
			}
		}
		if l.current != nil {
			l.current.Dec()
		}
	})
	return c.Conn.Close()
}

// EndHandshake implements [transport.BoundedConn].
func (c *boundedConn) EndHandshake() {
	if begun, ok := c.Conn.(*cpu.Conn); ok {
		begun.EndHandshake()
	}
}

// socket returns the connection below the handshake.
func (c *boundedConn) socket() net.Conn {
	if begun, ok := c.Conn.(*cpu.Conn); ok {
		return begun.Conn
	}
	return c.Conn
}

// SyscallConn lets the built-in transport read without a buffer per connection.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	if file, ok := c.Conn.(syscall.Conn); ok {
		return file.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets net/http close the write half first, so that a client can read why it was
// rejected before the connection is closed.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.socket().(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
