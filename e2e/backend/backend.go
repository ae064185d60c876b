// Package backend is the service behind Envoy in tests and in the demo: it
// answers every request with what it got.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Request is what the backend got, and the body of its answer as JSON.
type Request struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Header http.Header `json:"header"`
}

// Backend is a running server. Any number of goroutines may use it. Its starter must call
// [Backend.Close].
type Backend struct {
	// Addr is where it listens, as host:port.
	Addr string

	server *http.Server
	served chan error
	mu     sync.Mutex
	got    []Request
}

// Start listens on a free port of the loopback interface.
func Start(ctx context.Context) (*Backend, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Backend{Addr: listener.Addr().String(), served: make(chan error, 1)}
	b.server = &http.Server{Handler: http.HandlerFunc(b.echo), ReadHeaderTimeout: 10 * time.Second}
	go func() { b.served <- b.server.Serve(listener) }()
	return b, nil
}

// Requests returns what came in so far, in order.
func (b *Backend) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Request(nil), b.got...)
}

// Close ends the server and its connections.
func (b *Backend) Close() error {
	closed := b.server.Close()
	if err := <-b.served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return closed
}

func (b *Backend) echo(w http.ResponseWriter, r *http.Request) {
	// The server would hold a connection open whose request it has not read.
	_, _ = io.Copy(io.Discard, r.Body)
	got := Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header}
	b.mu.Lock()
	b.got = append(b.got, got)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	// The client is gone if this fails.
	_ = json.NewEncoder(w).Encode(got)
}
