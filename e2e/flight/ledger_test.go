package flight_test

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

// A ledger is the service behind Envoy. It counts the requests that it has, of each user and of all. Without a
// handler it holds those to / until the user's gate lets one go, and answers others at once.
type ledger struct {
	addr   string
	handle http.HandlerFunc

	mu     sync.Mutex
	users  map[string]int
	gates  map[string]chan struct{}
	now    int
	peak   int      // the most of all users at once
	leases []string // that came, in order
}

func startLedger(t *testing.T, handle http.HandlerFunc) *ledger {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	l := &ledger{addr: listener.Addr().String(), handle: handle, users: map[string]int{}, gates: map[string]chan struct{}{}}
	server := &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return l
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// gate returns where a user's requests wait.
func (l *ledger) gate(user string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[user] == nil {
		l.gates[user] = make(chan struct{})
	}
	return l.gates[user]
}

func (l *ledger) count(user string, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now += by
	l.users[user] += by
	l.peak = max(l.peak, l.now)
}

// inFlight returns how many requests of all users the ledger has, and the most it had at once.
func (l *ledger) inFlight() (now, top int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.peak
}

// inFlightOf returns how many requests of a user the ledger has.
func (l *ledger) inFlightOf(user string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[user]
}

// lastLease returns the lease of the request that came last.
func (l *ledger) lastLease() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leases) == 0 {
		return ""
	}
	return l.leases[len(l.leases)-1]
}

// holdUntil is a handler that keeps a request until its client is gone, or told on a channel.
func holdUntil(free <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not see that the client is gone
		select {
		case <-free:
		case <-r.Context().Done():
		}
	}
}

// streams are requests of a user that the backend holds.
type streams struct {
	*stage

	user     string
	leases   []string
	held     int
	statuses chan int
}

// startStreams sends n requests of a user, each when the backend has the one before.
func (s *stage) startStreams(t *testing.T, user string, n int) *streams {
	t.Helper()
	f := &streams{stage: s, user: user, statuses: make(chan int, 100)}
	for range n {
		f.addOne(t)
	}
	return f
}

// addOne sends one more.
func (f *streams) addOne(t *testing.T) {
	t.Helper()
	go func() {
		status, err := f.get(t.Context(), f.user, "/")
		if err != nil && status == http.StatusOK { // else the test has ended, or killed the Envoy
			t.Error(err)
		}
		f.statuses <- status
	}()
	f.held++
	f.awaitHeld(t, f.user, f.held)
	f.leases = append(f.leases, f.lastLease())
}

// finishOne lets one go, and returns its status.
func (f *streams) finishOne(t *testing.T) int {
	t.Helper()
	f.held--
	select {
	case f.gate(f.user) <- struct{}{}:
		return <-f.statuses
	case <-time.After(suite.Patience):
		t.Fatalf("the backend holds no request of %s", f.user)
		return 0
	}
}
