package concurrency_test

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// Leases last for an hour, so that no permit is released by expiry.
const (
	sixteenAtOnce = "{domain: d, descriptors: [{ key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 16, unit: hour } }]}"
	twoForAnHour  = "{domain: d, descriptors: [{ key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 2, unit: hour } }]}"
)

func (s *testbed) activeLeases(t *testing.T) float64 {
	t.Helper()
	return s.metric(t, "sluice_leases_active")
}

// TestAbortsLoseNoPermits has most clients disconnect before the answer, some of them before sluice
// has answered Envoy. In the end all permits are free, and no lease has expired.
func TestAbortsLoseNoPermits(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, sixteenAtOnce, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	})
	patience := []time.Duration{500 * time.Microsecond, 3 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	var clients sync.WaitGroup
	for n := range 32 {
		clients.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(mathrand.Int64N(int64(2*patience[n%len(patience)]))))
				_, _ = s.get(ctx, "al", "/") // most disconnect before the answer
				cancel()
			}
		})
	}
	clients.Wait()
	suite.Eventually(t, "all permits free", func() bool { return s.activeLeases(t) == 0 })
	if _, top := s.inFlight(); top == 0 || s.metric(t, "sluice_leases_expired_total") != 0 {
		t.Errorf("the backend had up to %d concurrent requests, and leases expired", top)
	}
	t.Logf("released: %v by an end call, %v by a reset", s.metric(t, "sluice_leases_released_total", `by="done"`), s.metric(t, "sluice_leases_released_total", `by="reset"`))
}

// holdAtBackend sends n requests of al, which the backend keeps.
func (s *testbed) holdAtBackend(t *testing.T, n int) {
	t.Helper()
	for range n {
		go func() { _, _ = s.get(t.Context(), "al", "/") }() // fails if the test kills Envoy
	}
	suite.Eventually(t, "requests at the backend", func() bool { now, _ := s.inFlight(); return now == n })
}

// TestKilledEnvoyReleases kills an Envoy whose clients continue.
func TestKilledEnvoyReleases(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, twoForAnHour, holdUntil(nil))
	s.holdAtBackend(t, 2)
	s.waitAfterReply()
	s.envoy.Kill()
	suite.Eventually(t, "all permits free", func() bool { return s.activeLeases(t) == 0 })
	if got := s.metric(t, "sluice_leases_released_total", `by="connection"`); got != 2 {
		t.Errorf("%v leases were released with the connection, want 2", got)
	}
}

// waitAfterReply waits long enough that closing a connection does not count as closing it right
// after a reply.
func (*testbed) waitAfterReply() { time.Sleep(400 * time.Millisecond) }

// TestLiveEnvoyKeepsLeases has an Envoy replace its connections while the backend has its requests.
// Without any connection it keeps its leases for longer than the grace period, while another client
// that is lost later loses its leases.
func TestLiveEnvoyKeepsLeases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options string // options of Envoy's connections
		args    []string
	}{
		"request counts": {"common_http_protocol_options: { max_requests_per_connection: 1 }", nil},
		"age":            {"", []string{"--max-connection-age", "1s"}},
		"idle":           {"", []string{"--max-connection-idle", "1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startTestbed(t, twoForAnHour, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/brief" {
					holdUntil(nil)(w, r)
				}
			}, append([]string{"--lease-grace", "50ms"}, test.args...)...)
			s.envoy = s.startEnvoy(t, connectionOptions(test.options)...)
			for range 10 { // until sluice has learned how this Envoy replaces connections
				if _, err := s.get(t.Context(), "al", "/brief"); err != nil { // may be denied, because an end call may be late
					t.Fatal(err)
				}
			}
			suite.Eventually(t, "all permits free", func() bool { return s.activeLeases(t) == 0 })
			s.holdAtBackend(t, 2)
			suite.Eventually(t, "no connection", func() bool { return s.metric(t, "sluice_grpc_connections") == 0 })
			s.loseOtherClient(t)
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience) // if admitted, it would wait at the backend
			defer cancel()
			if status, err := s.get(ctx, "al", "/"); status != http.StatusTooManyRequests {
				t.Errorf("a third request got %d, %v, want 429", status, err)
			}
		})
	}
}

// connectionOptions returns replacements for startEnvoy that add options to Envoy's connections.
func connectionOptions(options string) []string {
	return []string{"explicit_http_config:", options + "\n          explicit_http_config:"}
}

// TestShortConnectionsAreExact has an Envoy use each connection for three calls, under load.
func TestShortConnectionsAreExact(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, sixteenAtOnce, func(http.ResponseWriter, *http.Request) {
		time.Sleep(time.Duration(mathrand.Int64N(int64(20 * time.Millisecond))))
	})
	s.envoy = s.startEnvoy(t, connectionOptions("common_http_protocol_options: { max_requests_per_connection: 3 }")...)
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for passed := 0; passed < 10; {
				status, err := s.get(t.Context(), "al", "/")
				if err != nil {
					t.Error(err)
					return
				}
				if status == http.StatusOK {
					passed++
				}
			}
		})
	}
	clients.Wait()
	if _, top := s.inFlight(); top > 16 {
		t.Errorf("the backend had %d concurrent requests, want at most 16", top)
	}
	suite.Eventually(t, "all permits free", func() bool { return s.activeLeases(t) == 0 })
}

// loseOtherClient has clients of another address acquire leases and disconnect, until one lease has
// been released.
func (s *testbed) loseOtherClient(t *testing.T) {
	t.Helper()
	suite.Eventually(t, "another client's lease is released", func() bool {
		s.acquireAndDisconnect(t)
		s.waitAfterReply() // the grace period
		return s.metric(t, "sluice_leases_released_total", `by="connection"`) > 0
	})
}

// acquireAndDisconnect has a client of another address acquire a lease and close its connection.
func (s *testbed) acquireAndDisconnect(t *testing.T) {
	t.Helper()
	var conn net.Conn
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client, err := grpc.NewClient("passthrough:///"+s.sluice.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (c net.Conn, err error) {
			conn, err = dialer.DialContext(ctx, "tcp", addr)
			return conn, err
		}))
	must.OK(t, err)
	defer client.Close()
	_, err = rls.NewRateLimitServiceClient(client).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: rand.Text()}},
	}}})
	must.OK(t, err)
	s.waitAfterReply()
	_ = conn.Close()
}
