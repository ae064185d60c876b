package store

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// A relay stands between a store and a server. It holds what either says, as a network that has lost
// a packet does until that is sent again, and may end TLS.
type relay struct {
	addr string

	mu      sync.Mutex
	resumed sync.Cond
	held    bool
	silent  bool
	waiting int // connections that have something to bring meanwhile
	open    map[net.Conn]bool
	ended   bool
	severed bool
	secure  int // connections that came by TLS
	plain   int // and those that did not
}

// newRelay relays to a server until the test ends. With a configuration of TLS it ends TLS of those
// who begin with it; onlyTLS refuses others.
func newRelay(tb testing.TB, to string, config *tls.Config, onlyTLS bool) *relay {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(tb, err)
	r := &relay{addr: l.Addr().String(), open: map[net.Conn]bool{}}
	r.resumed.L = &r.mu
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.serve(c, to, config, onlyTLS) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		r.ended = true
		for c := range r.open {
			_ = c.Close()
		}
		r.resumed.Broadcast()
		r.mu.Unlock()
		all.Wait()
	})
	return r
}

// holdBoth keeps all bytes back from now on, or lets them go on.
func (r *relay) holdBoth(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = yes
	r.resumed.Broadcast()
}

// holdReplies keeps back what the server says from now on, or lets it go on. What the store says goes on.
func (r *relay) holdReplies(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = yes
	r.resumed.Broadcast()
}

// isHolding reports whether bytes are kept back.
func (r *relay) isHolding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held && r.waiting > 0
}

// connections returns how many came by TLS, and how many did not.
func (r *relay) connections() (secure, plain int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secure, r.plain
}

// add notes c, so that the end of the test closes it. It reports false after that.
func (r *relay) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.severed {
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) remove(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relay) serve(raw net.Conn, to string, config *tls.Config, onlyTLS bool) {
	defer r.remove(raw)
	if !r.add(raw) {
		return
	}
	c := raw
	if config != nil {
		first := make([]byte, 1)
		if _, err := io.ReadFull(raw, first); err != nil {
			return
		}
		c = &peekedConn{raw, first}
		secure := first[0] == 22 // a handshake's record
		r.mu.Lock()
		if secure {
			r.secure++
		} else {
			r.plain++
		}
		r.mu.Unlock()
		if onlyTLS && !secure {
			return
		}
		if secure {
			c = tls.Server(c, config)
		}
	}
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer r.remove(s)
	if !r.add(s) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { r.copyBytes(c, s, func() bool { return r.held || r.silent }) })
	r.copyBytes(s, c, func() bool { return r.held })
	back.Wait()
}

// copyBytes brings what from says to the other unless it is kept back, and ends both.
func (r *relay) copyBytes(to, from net.Conn, kept func() bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.mu.Lock()
			r.waiting++
			for kept() && !r.ended {
				r.resumed.Wait()
			}
			r.waiting--
			r.mu.Unlock()
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// peekedConn is a connection of which the first bytes have been read.
type peekedConn struct {
	net.Conn
	first []byte
}

func (b *peekedConn) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// cut ends all connections and those that come from now on, or lets new ones be.
func (r *relay) cut(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.severed = yes
	if yes {
		for c := range r.open {
			_ = c.Close()
		}
	}
}
