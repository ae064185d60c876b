//go:build more

package store

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// A relay is a proxy between a store and its server. It can delay data, like a network that loses a
// packet until it is sent again, and can terminate TLS.
type relay struct {
	addr string

	mu      sync.Mutex
	resumed sync.Cond
	paused  bool
	silent  bool
	waiting int // number of directions with waiting data
	open    map[net.Conn]bool
	ended   bool
	severed bool
	secure  int // number of connections with TLS
	plain   int // number of connections without TLS
}

// newRelay relays connections to a server until the test ends. With a TLS configuration it
// terminates TLS of clients that begin with it; onlyTLS rejects others.
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

// pause stops or resumes forwarding in both directions.
func (r *relay) pause(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = on
	r.resumed.Broadcast()
}

// pauseReplies stops or resumes forwarding replies. Commands are still forwarded.
func (r *relay) pauseReplies(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = on
	r.resumed.Broadcast()
}

// connections returns the numbers of connections with and without TLS.
func (r *relay) connections() (secure, plain int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secure, r.plain
}

// add records c, which is closed at the end of the test. After that add returns false.
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
		secure := first[0] == 22 // a handshake record
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
	back.Go(func() { r.copyBytes(c, s, func() bool { return r.paused || r.silent }) })
	r.copyBytes(s, c, func() bool { return r.paused })
	back.Wait()
}

// copyBytes forwards data while paused reports false, and closes both connections at the end.
func (r *relay) copyBytes(to, from net.Conn, paused func() bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.mu.Lock()
			r.waiting++
			for paused() && !r.ended {
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

// A peekedConn is a connection whose first bytes have been read.
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

// setBlocked closes all connections and rejects new ones, or with false accepts connections again.
func (r *relay) setBlocked(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.severed = on
	if on {
		for c := range r.open {
			_ = c.Close()
		}
	}
}
