package concurrency_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// backend is the backend of Envoy. It counts the requests in progress per user.
// Without a handler it keeps requests for / until the user's gate lets one proceed, and answers
// others immediately.
type backend struct {
	addr   string
	handle http.HandlerFunc

	mu    sync.Mutex
	users map[string]int
	gates map[string]chan struct{}
}

func startBackend(t *testing.T, handle http.HandlerFunc) *backend {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	l := &backend{addr: listener.Addr().String(), handle: handle, users: map[string]int{}, gates: map[string]chan struct{}{}}
	server := &http.Server{Handler: l, ReadHeaderTimeout: time.Hour, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // returns when it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return l
}

func (l *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("X-User")
	l.count(user, 1)
	defer l.count(user, -1)
	switch {
	case l.handle != nil:
		l.handle(w, r)
	case r.URL.Path == "/":
		holdUntil(l.gate(user))(w, r)
	}
}

// gate returns the channel that a user's requests wait for.
func (l *backend) gate(user string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[user] == nil {
		l.gates[user] = make(chan struct{})
	}
	return l.gates[user]
}

func (l *backend) count(user string, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[user] += by
}

// inFlightOf returns the current number of requests of a user.
func (l *backend) inFlightOf(user string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[user]
}

// holdUntil is a handler that keeps a request until its client has disconnected or free is
// readable.
func holdUntil(free <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
		select {
		case <-free:
		case <-r.Context().Done():
		}
	}
}
