package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestHTTP1GetsHint sends HTTP/1 requests to the gRPC port, with bodies and in parts, with and
// without TLS. Each gets one readable response, and is counted and logged.
func TestHTTP1GetsHint(t *testing.T) {
	_, pair := serverFiles(t)
	for name, send := range map[string]struct {
		text   string
		pieces bool
	}{
		"GET":             {text: "GET /json HTTP/1.1\r\nHost: sluice\r\n\r\n"},
		"in pieces":       {"GET /json HTTP/1.1\r\nHost: sluice\r\n\r\n", true},
		"a body":          {text: "POST /json HTTP/1.1\r\nHost: sluice\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200_000)},
		"many at once":    {text: strings.Repeat("GET /json HTTP/1.1\r\nHost: sluice\r\n\r\n", 100)},
		"HTTP/1.0":        {text: "GET / HTTP/1.0\r\n\r\n"},
		"an upgrade":      {text: "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"},
		"TLS, but HTTP/1": {text: "GET /json HTTP/1.1\r\nHost: sluice\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, answer.Settings{}, oneRule)
			options := Options{}
			if strings.HasPrefix(name, "TLS") {
				options.TLS = serverTLS(t, access.TLSOptions{Cert: pair.Cert, Key: pair.Key})
			}
			r := serve(t, s, options)
			conn := r.connect(t, "")
			if options.TLS != nil {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			}
			if send.pieces {
				for _, b := range []byte(send.text[:5]) {
					if _, err := conn.Write([]byte{b}); err != nil {
						t.Fatal(err)
					}
				}
				send.text = send.text[5:]
			}
			go func() { _, _ = io.Copy(conn, strings.NewReader(send.text)) }()
			received, err := io.ReadAll(conn)
			if err != nil {
				t.Fatalf("after the response %q: %v", received, err)
			}
			reply, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(received)), nil)
			if err != nil {
				t.Fatalf("%q: %v", received, err)
			}
			body, err := io.ReadAll(reply.Body)
			if err != nil || reply.StatusCode != http.StatusBadRequest || !reply.Close || !bytes.HasSuffix(received, body) ||
				!bytes.Contains(body, []byte("gRPC over HTTP/2")) || !bytes.Contains(body, []byte("served at --http-addr")) {
				t.Errorf("the response is %q, %v", received, err)
			}
			_ = conn.Close()
			await(t, "no connection is open", func() bool { return gathered(t, s, "sluice_grpc_connections") == nil })
			if diff := cmp.Diff(map[string]float64{"protocol": 1}, endedBy(t, s)); diff != "" {
				t.Errorf("closed connections by reason (-want +got):\n%s", diff)
			}
			if n := r.logs.Filter(func(e observer.LoggedEntry) bool {
				return strings.HasPrefix(e.Message, "connection closed: HTTP/1 request on the gRPC port")
			}).Len(); n != 1 {
				t.Errorf("the log has %d lines about the closed connection, want 1", n)
			}
			creds := insecure.NewCredentials()
			if options.TLS != nil {
				creds = clientTLS(t, access.TLSOptions{CA: pair.CA})
			}
			if err := r.request(t, creds); err != nil {
				t.Errorf("a call of the next client: %v", err)
			}
		})
	}
}

// TestNonHTTPGetsNoHTTP1Response sends bytes that are not HTTP.
func TestNonHTTPGetsNoHTTP1Response(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	conn := r.connect(t, "")
	if _, err := conn.Write([]byte("\x16\x03\x01\x02\x00 a client of TLS, perhaps")); err != nil {
		t.Fatal(err)
	}
	if received, _ := io.ReadAll(conn); bytes.Contains(received, []byte("HTTP/1.1")) {
		t.Errorf("the client gets %q", received)
	}
}

// TestTLSWithoutALPNIsExplained connects a TLS client that offers no protocol, or only HTTP/1. The
// connection is closed, and the reason is logged once in ten seconds.
func TestTLSWithoutALPNIsExplained(t *testing.T) {
	_, pair := serverFiles(t)
	core, logs := observer.New(zap.InfoLevel)
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{
		TLS: serverTLS(t, access.TLSOptions{Cert: pair.Cert, Key: pair.Key, Logger: zap.New(core)}),
	})
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		conn := tls.Client(r.connect(t, ""), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: sluice\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the server closes the connection
	}
	await(t, "the log line", func() bool { return logs.Len() > 1 })
	lines := 0
	for _, e := range logs.All() {
		if strings.Contains(e.Message, "ALPN") && e.Level == zap.WarnLevel {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines explain the closed connection, want one: %v", lines, logs.All())
	}
}
