// Package backend is the service behind Envoy in tests and in the demo. It answers every request
// with a description of the request.
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

// Request is a received request. Its JSON is the body of the answer.
type Request struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Header http.Header `json:"header"`
}

// Backend is a running server. It is safe for concurrent use. The starter must call
// [Backend.Close].
type Backend struct {
	// Addr is the server's host:port.
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
	b.server = &http.Server{Handler: http.HandlerFunc(b.echo), ReadHeaderTimeout: time.Hour}
	go func() { b.served <- b.server.Serve(listener) }()
	return b, nil
}

// Requests returns the requests received so far, in order.
func (b *Backend) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Request(nil), b.got...)
}

// Close stops the server and closes its connections.
func (b *Backend) Close() error {
	closed := b.server.Close()
	if err := <-b.served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return closed
}

func (b *Backend) echo(w http.ResponseWriter, r *http.Request) {
	// The server would keep the connection of an unread request open.
	_, _ = io.Copy(io.Discard, r.Body)
	got := Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header}
	b.mu.Lock()
	b.got = append(b.got, got)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(got)
}
