package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// httpServed is the serving side of a connection over HTTP.
type httpServed struct {
	conn    *boundedConn
	elapsed func() time.Duration

	mu      sync.Mutex
	usage   transport.Usage
	running int // number of handlers; HTTP/2 may have several
}

type httpServedKey struct{}

// serveOn has s serve the connections of l.
func (l *connections) serveOn(s *http.Server) {
	handler := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		bounded, ok := c.(*boundedConn)
		if !ok {
			return ctx
		}
		served := &httpServed{conn: bounded, elapsed: l.elapsed, usage: transport.Usage{Since: bounded.begun}}
		bounded.ServedBy(served)
		return context.WithValue(ctx, httpServedKey{}, served)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := r.Context().Value(httpServedKey{}).(*httpServed); ok {
			h.run(1)
			defer h.run(-1)
		}
		handler.ServeHTTP(w, r)
	})
}

// run counts a handler that begins (1) or ends (-1).
func (h *httpServed) run(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running += change
	h.usage = transport.Usage{Busy: h.running > 0, Used: true, Since: h.elapsed()}
}

// Usage implements [transport.Served].
func (h *httpServed) Usage() transport.Usage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usage
}

// Retire implements [transport.Served].
func (h *httpServed) Retire(bool) { _ = h.conn.Close() } // an error changes nothing: the connection has ended

// whileWaiting calls f, in which the handler of r waits for its client.
func whileWaiting(r *http.Request, f func()) {
	if h, ok := r.Context().Value(httpServedKey{}).(*httpServed); ok {
		h.run(-1)
		defer h.run(1)
	}
	f()
}
