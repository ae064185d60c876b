package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// httpConnections is a listener that bounds the open connections of an HTTP server. To admit one more it closes the
// connection that has waited for its client for longest: no client can keep probes and scrapes out with connections
// that it does not use. A connection is rejected only if a handler runs on each of the others.
type httpConnections struct {
	net.Listener
	max      int
	rejected prometheus.Counter // of connections closed because of the bound

	mu      sync.Mutex
	open    int
	waiting list.List // of *httpConn without a running handler; the first has waited for longest
}

// httpConn is a connection of httpConnections. Its fields are guarded by the mutex of these.
type httpConn struct {
	net.Conn
	from    *httpConnections
	running int           // handlers, of which HTTP/2 may have several
	element *list.Element // in from.waiting; nil while a handler runs
	closed  bool
}

// serveOn has s serve the connections of l.
func (l *httpConnections) serveOn(s *http.Server) {
	handler := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		return context.WithValue(ctx, httpConnKey{}, c)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(httpConnKey{}).(*httpConn)
		if !ok {
			handler.ServeHTTP(w, r)
			return
		}
		c.run(1)
		defer c.run(-1)
		handler.ServeHTTP(w, r)
	})
}

type httpConnKey struct{}

// Accept returns the next connection within the bound.
func (l *httpConnections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &httpConn{Conn: conn, from: l}
		surplus, admitted := l.admit(c)
		if surplus != nil {
			l.rejected.Inc()
			_ = surplus.Close() // an error changes nothing: the connection is not served any more
		}
		if admitted {
			return c, nil
		}
	}
}

// admit counts c if there is room. It returns the connection to close, which is c if there is none.
func (l *httpConnections) admit(c *httpConn) (surplus net.Conn, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max {
		longest, ok := frontOf(&l.waiting)
		if !ok {
			return c.Conn, false
		}
		longest.leaveLocked()
		surplus = longest
	}
	l.open++
	c.element = l.waiting.PushBack(c)
	return surplus, true
}

func frontOf(l *list.List) (*httpConn, bool) {
	first := l.Front()
	if first == nil {
		return nil, false
	}
	c, ok := first.Value.(*httpConn)
	return c, ok
}

// run notes that a handler begins (1) or ends (-1) on c.
func (c *httpConn) run(change int) {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.running += change
	switch {
	case c.closed:
	case c.running > 0 && c.element != nil:
		c.from.waiting.Remove(c.element)
		c.element = nil
	case c.running == 0 && c.element == nil:
		c.element = c.from.waiting.PushBack(c)
	}
}

// Close closes the connection and makes room for another.
func (c *httpConn) Close() error {
	c.from.mu.Lock()
	c.leaveLocked()
	c.from.mu.Unlock()
	return c.Conn.Close()
}

func (c *httpConn) leaveLocked() {
	if c.closed {
		return
	}
	c.closed = true
	c.from.open--
	if c.element != nil {
		c.from.waiting.Remove(c.element)
		c.element = nil
	}
}

// CloseWrite is what that of boundedConn is.
func (c *httpConn) CloseWrite() error { return closeWrite(c.Conn) }

// whileWaiting calls f, in which the handler of r waits for its client.
func whileWaiting(r *http.Request, f func()) {
	if c, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
		c.run(-1)
		defer c.run(1)
	}
	f()
}
