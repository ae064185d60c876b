package concurrency_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// backend is the backend of Envoy. It counts the requests in progress per user and in total.
// Without a handler it keeps requests for / until the user's gate lets one proceed, and answers
// others immediately.
type backend struct {
	addr   string
	handle http.HandlerFunc

	mu     sync.Mutex
	users  map[string]int
	gates  map[string]chan struct{}
	now    int
	peak   int      // maximum of all users together
	leases []string // received leases, in order
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
	l.mu.Lock()
	l.leases = append(l.leases, r.Header.Get("X-Lease"))
	l.mu.Unlock()
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
	l.now += by
	l.users[user] += by
	l.peak = max(l.peak, l.now)
}

// inFlight returns the current number of requests of all users, and the maximum so far.
func (l *backend) inFlight() (now, top int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.peak
}

// inFlightOf returns the current number of requests of a user.
func (l *backend) inFlightOf(user string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[user]
}

// lastLease returns the lease of the latest request.
func (l *backend) lastLease() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leases) == 0 {
		return ""
	}
	return l.leases[len(l.leases)-1]
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

// streams are requests of a user that the backend keeps.
type streams struct {
	*testbed

	user     string
	leases   []string
	held     int
	statuses chan int
}

// startStreams sends n requests of a user, each after the backend has the previous one.
func (s *testbed) startStreams(t *testing.T, user string, n int) *streams {
	t.Helper()
	f := &streams{testbed: s, user: user, statuses: make(chan int, 100)}
	for range n {
		f.addOne(t)
	}
	return f
}

// addOne sends one more request.
func (f *streams) addOne(t *testing.T) {
	t.Helper()
	go func() {
		status, err := f.get(t.Context(), f.user, "/")
		if err != nil && status == http.StatusOK { // otherwise the test has ended or killed Envoy
			t.Error(err)
		}
		f.statuses <- status
	}()
	f.held++
	f.awaitHeld(t, f.user, f.held)
	f.leases = append(f.leases, f.lastLease())
}

// finishOne lets one request finish and returns its status.
func (f *streams) finishOne(t *testing.T) int {
	t.Helper()
	f.held--
	select {
	case f.gate(f.user) <- struct{}{}:
		return <-f.statuses
	case <-time.After(suite.Patience):
		t.Fatalf("the backend has no request of %s", f.user)
		return 0
	}
}
