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
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// retirePatience is the longest that a connection may take to end gently, and maxRetiring the largest number of those that
// do, beyond the bound.
const (
	retirePatience = 2 * time.Second
	maxRetiring    = 64
)

// connections is a listener that bounds its open connections and gives each client address a fair share. To
// admit one more it ends an idle one, whose client has the most connections or never made a call; see [compareRanks].
// So a client cannot keep out probes, scrapes and other proxies with connections that it does not use.
type connections struct {
	net.Listener
	max      int
	elapsed  func() time.Duration
	patience time.Duration      // longest that a connection may take to end gently
	rejected prometheus.Counter // of connections ended because of the bound
	current  prometheus.Gauge   // number of open connections; optional

	mu        sync.Mutex
	open      map[*boundedConn]struct{}
	byAddress map[netip.Addr]int // number of open connections
	retiring  []*boundedConn     // in the order in which they began to end gently
	surplus   surplus
}

// boundedConn is a connection of connections.
type boundedConn struct {
	net.Conn
	from    *connections
	address netip.Addr
	begun   time.Duration
	once    sync.Once
	served  transport.Served // guarded by from.mu; optional
}

var _ transport.BoundedConn = (*boundedConn)(nil)

// Accept returns the next connection within the bound.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: conn, from: l, address: addressOf(conn.RemoteAddr()), begun: l.elapsed()}
		if l.admit(c) {
			return c, nil
		}
		l.rejected.Inc()
		_ = conn.Close() // an error changes nothing: the connection is rejected
	}
}

// addressOf returns the address by which a client is known; see [access.AddressOf]. All clients of a unix socket have one.
func addressOf(addr net.Addr) netip.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return access.AddressOf(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// clientAddress is addressOf for the client of a request.
func clientAddress(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // of a unix socket
	}
	return access.AddressOf(addr.Addr())
}

// admit reports whether there is room for c, and counts it then. It may end another connection for that.
func (l *connections) admit(c *boundedConn) bool {
	l.mu.Lock()
	var gone, late *boundedConn
	gently := false
	if len(l.open) >= l.max {
		if gone, gently = l.takeSurplusLocked(c); gone == nil {
			l.mu.Unlock()
			return false
		}
		l.leaveLocked(gone)
		if gently {
			late = l.retireLocked(gone)
		}
	}
	if l.open == nil {
		l.open, l.byAddress = map[*boundedConn]struct{}{}, map[netip.Addr]int{}
	}
	l.open[c] = struct{}{}
	l.byAddress[c.address]++
	l.mu.Unlock()
	if l.current != nil {
		l.current.Inc()
	}
	if gone != nil {
		l.rejected.Inc()
		gone.retire(gently)
	}
	if late != nil {
		late.retire(false)
	}
	return true
}

// leaveLocked stops counting c as an open connection.
func (l *connections) leaveLocked(c *boundedConn) {
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	if l.byAddress[c.address]--; l.byAddress[c.address] == 0 {
		delete(l.byAddress, c.address)
	}
}

// retireLocked adds c to the connections that end gently. It returns the one whose time is over because of that.
func (l *connections) retireLocked(c *boundedConn) (late *boundedConn) {
	if len(l.retiring) >= min(max(l.max/16, 1), maxRetiring) {
		late, l.retiring = l.retiring[0], l.retiring[1:]
	}
	l.retiring = append(l.retiring, c)
	return late
}

// ServedBy implements [transport.Bounded].
func (c *boundedConn) ServedBy(s transport.Served) {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.served = s
}

// usageLocked returns the use of the connection.
func (c *boundedConn) usageLocked() transport.Usage {
	if c.served == nil {
		return transport.Usage{Since: c.begun}
	}
	return c.served.Usage()
}

// retire ends the connection. It is called without the lock.
func (c *boundedConn) retire(gently bool) {
	c.from.mu.Lock()
	served := c.served
	c.from.mu.Unlock()
	if served == nil {
		_ = c.Close() // an error changes nothing: the connection is not served yet
		return
	}
	served.Retire(gently)
	if gently {
		time.AfterFunc(c.from.patience, func() { served.Retire(false) })
	}
}

// Close closes the connection and makes room for another.
func (c *boundedConn) Close() error {
	c.once.Do(func() {
		l := c.from
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leaveLocked(c)
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

// SyscallConn lets the built-in transport read without a buffer of its own.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	if file, ok := c.Conn.(syscall.Conn); ok {
		return file.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets net/http close its half first. Otherwise a client could see the connection's end
// before it has read why it was rejected.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
