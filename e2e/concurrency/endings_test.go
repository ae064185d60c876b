package concurrency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// releaseRules have permits that only an end call releases within the duration of a test.
const releaseRules = `
domain: d
descriptors:
  - { key: user, detailed_metric: true, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 4, unit: hour } }
---
domain: all
descriptors:
  - { key: all, rate_limit: { name: everybody, algorithm: concurrency, requests_per_unit: 1000, unit: hour } }
`

// ending is one way in which a request ends.
type ending struct {
	name, path string
	// answer is the handler of the backend. Default: it keeps the request until the client has
	// disconnected.
	answer http.HandlerFunc
	// client sends the request. Default: it reads the complete answer, which must have the given
	// status.
	client func(t *testing.T, s *testbed, user string)
	status int
	// extraPermits is the number of permits it acquires in addition to one.
	extraPermits float64
}

// TestEveryEndingReleases ends requests in every way that Envoy knows. Each acquires a permit of
// its user and a global one, and both are released.
func TestEveryEndingReleases(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{}
	for _, e := range endings {
		answers[e.name] = e.answer
	}
	services := grpc.NewServer()
	reflection.Register(services)
	t.Cleanup(services.Stop)
	s := startTestbed(t, releaseRules, func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.Header.Get("X-User")]
		switch {
		case r.ProtoMajor == 2 && strings.HasPrefix(r.URL.Path, "/grpc."):
			services.ServeHTTP(w, r)
		case answer != nil:
			answer(w, r)
		default:
			holdUntil(nil)(w, r)
		}
	})
	t.Cleanup(func() { // after the subtests
		suite.Eventually(t, "all permits of the other filter are free", func() bool { return s.counter(t, "all", "all", "all").Remaining == 1000 })
	})
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if e.client != nil {
				e.client(t, s, e.name)
			} else if got, err := s.get(t.Context(), e.name, e.path); got != e.status {
				t.Errorf("status %d (%v), want %d", got, err, e.status)
			}
			s.awaitFreePermits(t, e.name, 4)
			if got := s.metric(t, "ratelimit_service_rate_limit_total_hits", `domain="d",key1="user_`+e.name+`"`); got != 1+e.extraPermits {
				t.Errorf("the request acquired %v permits, want %v", got, 1+e.extraPermits)
			}
		})
	}
}

// awaitHeld waits until the backend has n requests of a user, and checks that they hold n permits.
func (s *testbed) awaitHeld(t *testing.T, user string, n int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d requests of %s at the backend", n, user), func() bool { return s.inFlightOf(user) == n })
	if got := s.freePermits(t, user); got != 4-n {
		t.Errorf("%s has %d free permits with %d requests, want %d", user, got, n, 4-n)
	}
}

// disconnect sends a request and disconnects when the backend has it.
func disconnect(client func(*testing.T) *http.Client) func(*testing.T, *testbed, string) {
	return func(t *testing.T, s *testbed, user string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			reply, err := client(t).Do(s.request(ctx, user, "/"))
			if err == nil {
				_, err = io.Copy(io.Discard, reply.Body)
				_ = reply.Body.Close()
			}
			done <- err
		}()
		s.awaitHeld(t, user, 1)
		cancel()
		if err := <-done; err == nil {
			t.Error("the client received the complete answer before it could disconnect")
		}
	}
}

// clientFor returns a client for HTTP/1 or HTTP/2 without TLS.
func clientFor(major int) func(*testing.T) *http.Client {
	return func(t *testing.T) *http.Client {
		t.Helper()
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(major == 1)
		transport.Protocols.SetUnencryptedHTTP2(major == 2)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
}

// sendRaw sends text over a new connection, waits for the request at the backend, and closes the
// connection. If status is not empty, it first waits for an answer whose status line contains it.
func sendRaw(text, status string) func(*testing.T, *testbed, string) {
	return func(t *testing.T, s *testbed, user string) {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.envoy.Addr("ingress"))
		must.OK(t, err)
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, text, user); err != nil {
			t.Fatal(err)
		}
		if status != "" {
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, status) {
				t.Fatalf("the answer begins with %q (%v), want %s", line, err, status)
			}
		}
		if !strings.HasPrefix(text, "CONNECT") { // the backend does not see a request
			s.awaitHeld(t, user, 1)
		} else if got := s.freePermits(t, user); got != 3 {
			t.Errorf("%d permits are free with a tunnel open, want 3", got)
		}
	}
}

// upgradeWebSocket answers a WebSocket handshake and keeps the connection until the client has
// disconnected.
func upgradeWebSocket(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = buffered.Flush()
	_, _ = io.Copy(io.Discard, conn)
}

// afterHalfAnswer sends half of an answer and then calls next.
func afterHalfAnswer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half\n")
		_ = http.NewResponseController(w).Flush()
		next(w, r)
	}
}

func resetStream(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// failFirst answers 503 to the first n attempts.
func failFirst(n string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Envoy-Attempt-Count") <= n {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

var endings = []ending{
	{name: "complete", path: "/", answer: func(http.ResponseWriter, *http.Request) {}, status: 200},
	{name: "backend-error", path: "/", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, status: 502},
	{name: "reset", path: "/", answer: resetStream, status: 503},
	{name: "reset-mid-answer", path: "/", answer: afterHalfAnswer(resetStream), status: 200},
	{name: "timeout", path: "/late", status: 504},
	{name: "no-backend", path: "/nobody", status: 503},
	{name: "direct-response", path: "/direct", status: 200, extraPermits: -1}, // Envoy makes no call
	{name: "positive", path: "/positive", answer: func(http.ResponseWriter, *http.Request) {}, status: 200},
	{name: "retried", path: "/retry", answer: failFirst("2"), status: 200},
	{name: "retries-exhausted", path: "/retry", answer: failFirst("9"), status: 503},
	{name: "hedged", path: "/hedge", answer: func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Envoy-Attempt-Count") == "1" {
			holdUntil(nil)(w, r)
		}
	}, status: 200},
	{name: "redirected", path: "/redirect", extraPermits: 1, answer: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			w.Header().Set("Location", "http://"+r.Host+"/there")
			w.WriteHeader(http.StatusFound)
		}
	}, status: 200},
	{name: "denied-by-later-filter", client: func(t *testing.T, s *testbed, user string) {
		t.Helper()
		if got, err := s.get(t.Context(), user, "/", "X-Envoy-Fault-Abort-Request", "418"); got != 418 {
			t.Errorf("a filter after ours answered %d (%v), want 418", got, err)
		}
	}},
	{name: "client-disconnects", client: disconnect(clientFor(1))},
	{name: "client-disconnects-mid-answer", answer: afterHalfAnswer(holdUntil(nil)), client: disconnect(clientFor(1))},
	{name: "client-resets", client: disconnect(clientFor(2))},
	{name: "client-resets-mid-answer", answer: afterHalfAnswer(holdUntil(nil)), client: disconnect(clientFor(2))},
	{name: "half-a-request", client: sendRaw("POST / HTTP/1.1\r\nHost: h\r\nX-User: %s\r\nContent-Length: 100\r\n\r\nhalf", "")},
	{name: "websocket", answer: upgradeWebSocket, client: sendRaw("GET / HTTP/1.1\r\nHost: h\r\nX-User: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "101")},
	{name: "tunnel", client: sendRaw("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nX-User: %s\r\n\r\n", "200")},
	{name: "trailers", client: converse(func(stream reflectionpb.ServerReflection_ServerReflectionInfoClient, _ func()) error {
		if err := stream.CloseSend(); err != nil {
			return err
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("the stream ended with %w", err)
		}
		return nil
	})},
	{name: "cancelled-grpc", client: converse(func(_ reflectionpb.ServerReflection_ServerReflectionInfoClient, cancel func()) error {
		cancel()
		return nil
	})},
}

// converse opens a bidirectional gRPC stream, sends a message, receives one, and calls finish.
func converse(finish func(reflectionpb.ServerReflection_ServerReflectionInfoClient, func()) error) func(*testing.T, *testbed, string) {
	return func(t *testing.T, s *testbed, user string) {
		t.Helper()
		conn, err := grpc.NewClient(s.envoy.Addr("ingress"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.OK(t, err)
		defer conn.Close()
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "x-user", user))
		defer cancel()
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		must.OK(t, err)
		list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
		must.OK(t, stream.Send(list))
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		s.awaitHeld(t, user, 1)
		if err := finish(stream, cancel); err != nil {
			t.Error(err)
		}
	}
}
