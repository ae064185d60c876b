package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// preface is the preface and empty SETTINGS of a client.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// connect connects to the gRPC listener and sends the first bytes.
func (r *running) connect(t *testing.T, first string) net.Conn {
	t.Helper()
	return r.connectTo(t, "grpc", first)
}

func (r *running) connectTo(t *testing.T, listener, first string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr[listener])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, first); err != nil {
		t.Fatal(err)
	}
	return conn
}

// awaitEnd waits until the server closes a connection, by an end of file or a reset.
func awaitEnd(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// TestHTTPConnectionsHaveABound checks that a full HTTP listener closes the connection that has
// waited longest for its client, even during or after a request.
func TestHTTPConnectionsHaveABound(t *testing.T) {
	t.Parallel()
	_, f := serverFiles(t)
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{
		JSONAddr: "127.0.0.1:0", TLS: serverTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key}), Limits: transport.Limits{MaxHTTPConnections: 2},
	})
	rejected := 0.0
	for _, listener := range []string{"http", "json", "metrics", "debug"} {
		first := r.connectTo(t, listener, "G") // only the first byte of GET
		second := r.connectTo(t, listener, "")
		third := r.connectTo(t, listener, "")
		awaitEnd(first)
		if rejected++; testutil.ToFloat64(s.Metrics().RejectedConnections) != rejected {
			t.Errorf("%s: %v connections rejected, want %v", listener, testutil.ToFloat64(s.Metrics().RejectedConnections), rejected)
		}
		_, _ = second.Close(), third.Close()
	}
}

// TestListenersForOperatorsHaveFewConnections checks that the listeners for operators, whose
// requests may have long headers, admit fewer connections.
func TestListenersForOperatorsHaveFewConnections(t *testing.T) {
	for listener, want := range map[string]float64{"http": 0, "metrics": 2, "debug": 2} {
		s := service(t, answer.Settings{}, oneRule)
		r := serve(t, s, Options{})
		for range maxOperatorConnections + 1 {
			r.connectTo(t, listener, "")
		}
		get(t, "http://"+r.addr[listener]+"/") // accepted after the others
		if got := testutil.ToFloat64(s.Metrics().RejectedConnections); got != want {
			t.Errorf("%s: %v connections were closed, want %v", listener, got, want)
		}
	}
}

// TestUsedHTTPConnectionsStay checks that a new connection is rejected while the only other one has
// a running handler. Once the handler reads from its client or has returned, that connection is
// closed for a new one.
func TestUsedHTTPConnectionsStay(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rejected := prometheus.NewCounter(prometheus.CounterOpts{Name: "rejected_total", Help: "Rejected connections."})
	running, release := make(chan struct{}), make(chan struct{})
	bounded := &boundedListener{Listener: l, max: 1, elapsed: stoppedClock, rejected: rejected}
	server := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			whileReading(r, func() {
				running <- struct{}{}
				_, _ = io.ReadAll(r.Body)
			})
			return
		}
		running <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "answered")
	}), maxHTTPHead, zap.NewNop())
	bounded.serveOn(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(bounded) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	connect := func(send string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, send); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	used := connect("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-running
	awaitEnd(connect(""))
	if got := testutil.ToFloat64(rejected); got != 1 {
		t.Fatalf("%v connections are rejected while another one has a running handler, want 1", got)
	}
	release <- struct{}{}
	response, err := http.ReadResponse(bufio.NewReader(used), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "answered" {
		t.Errorf("the response on the used connection is %q, %v", body, err)
	}
	_ = response.Body.Close()

	for range 2 { // the second request closes the first connection, which waits for its body
		connect("POST /waits HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		<-running
	}
}

// TestHeadersOverHTTPHaveABound sends headers beyond the bound.
func TestHeadersOverHTTPHaveABound(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	for _, listener := range []string{"http", "metrics"} {
		long := strings.Repeat("x", 24<<10) // net/http admits 4 KiB more than the limit
		code, _, _ := servertest.Fetch(t, http.MethodGet, "http://"+r.addr[listener]+"/healthcheck", "", "X-Long", long)
		if code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: large headers get status %d, want 431", listener, code)
		}
	}
}
