// Package flight tests limits on requests in flight behind the real Envoy: what runs at the backend is counted
// there.
package flight_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// root is the repository's root, seen from here.
const root = "../.."

// sluiceBinary is what TestMain built for all tests.
var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// A ledger is the service behind Envoy. It holds each request until it is let go, and counts how many it holds.
type ledger struct {
	server *http.Server
	addr   string

	mu       sync.Mutex
	now, top int
	hold     func(r *http.Request) // returns when the request is to be answered
}

func startLedger(t *testing.T, hold func(r *http.Request)) *ledger {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{addr: listener.Addr().String(), hold: hold}
	l.server = &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = l.server.Serve(listener) }()
	t.Cleanup(func() { _ = l.server.Close() })
	return l
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.now++
	l.top = max(l.top, l.now)
	l.mu.Unlock()
	l.hold(r)
	l.mu.Lock()
	l.now--
	l.mu.Unlock()
	_, _ = io.WriteString(w, "done\n") // the client may be gone
}

func (l *ledger) held() (now, top int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.top
}

// A stage is sluice, an Envoy in front of a ledger, and a client of the Envoy.
type stage struct {
	*ledger

	sluice *sluice.Sluice
	envoy  *envoy.Envoy
	client *http.Client
}

func play(t *testing.T, rules string, hold func(*http.Request), args ...string) *stage {
	t.Helper()
	config, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return playWith(t, config, rules, hold, args...)
}

// playWith is play with a configuration of Envoy.
func playWith(t *testing.T, config []byte, rules string, hold func(*http.Request), args ...string) *stage {
	t.Helper()
	binary, dir := suite.Envoy(t, root), t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	limits, err := sluice.Start(ctx, sluice.Options{Binary: sluiceBinary, Args: append([]string{"--config", path}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{ledger: startLedger(t, hold), sluice: limits, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	t.Cleanup(func() { limits.Kill() })
	t.Cleanup(s.client.CloseIdleConnections)
	s.envoy, err = envoy.Start(ctx, envoy.Options{
		Binary: binary, Bootstrap: config, Dir: dir,
		Clusters: map[string][]string{"sluice": {limits.Addr("grpc")}, "backend": {s.addr}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.envoy.Kill)
	return s
}

// get sends a request of the user al, and returns the status.
func (s *stage) get(ctx context.Context, path string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoy.Addr("ingress")+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-User", "al")
	reply, err := s.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return 0, fmt.Errorf("the answer broke off: %w", err)
	}
	return reply.StatusCode, nil
}
