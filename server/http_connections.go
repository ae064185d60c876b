package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// httpConn records the usage of an HTTP connection.
type httpConn struct {
	conn    *boundedConn
	elapsed func() time.Duration

	mu      sync.Mutex
	usage   transport.Usage
	running int // number of handlers; HTTP/2 may have several
}

type httpConnKey struct{}

// serveOn configures s to record the usage of connections of l.
func (l *boundedListener) serveOn(s *http.Server) {
	handler := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		bounded, ok := c.(*boundedConn)
		if !ok {
			return ctx
		}
		served := &httpConn{conn: bounded, elapsed: l.elapsed, usage: transport.Usage{Since: bounded.openedAt}}
		bounded.ServedBy(served)
		return context.WithValue(ctx, httpConnKey{}, served)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
			h.countHandler(1)
			defer h.countHandler(-1)
		}
		handler.ServeHTTP(w, r)
	})
}

// countHandler adds change to the number of running handlers.
func (h *httpConn) countHandler(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running += change
	h.usage = transport.Usage{Busy: h.running > 0, Used: true, Since: h.elapsed()}
}

// Usage implements [transport.Served].
func (h *httpConn) Usage() transport.Usage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usage
}

// Retire implements [transport.Served].
func (h *httpConn) Retire(bool) { _ = h.conn.Close() } // ignored: the connection is closed already

// whileReading calls f, which reads from the client. The connection counts as idle during the call,
// and its task is paused.
func whileReading(r *http.Request, f func()) {
	if h, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
		h.countHandler(-1)
		defer h.countHandler(1)
	}
	cpu.FromContext(r.Context()).Wait(f)
}
