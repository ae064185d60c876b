//go:build torture

package torture

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestHostileHTTP attacks the HTTP/1 listeners while other clients call. Slow requests take
// sluice's timeouts of 5 and 10 s.
func TestHostileHTTP(t *testing.T) {
	Parallel(t)
	each := Pick(20, 200)
	h := runUnderAttack(t, Options{}, func(s *sluice.Sluice) {
		addr := s.Addr("http")
		var slow sync.WaitGroup
		defer slow.Wait()
		slow.Go(func() { // concurrent with the other cases, because this takes long
			checkEnded(t, addr, each, nil, []byte("GET /healthcheck HT"), []byte("GET /healthcheck HTTP/1.1\r\nHost: x\r\nX: "),
				[]byte("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"domain\":"))
		})
		t.Run("headers without end", func(t *testing.T) {
			for _, listener := range []string{"http", "metrics", "debug"} {
				most := 64 << 10
				if listener == "debug" {
					most = 512 << 10 // its queries may contain a descriptor
				}
				sent, reply := sendRepeatedly(t, s.Addr(listener), "GET / HTTP/1.1\r\nHost: x\r\n", "X: "+strings.Repeat("x", 1000)+"\r\n")
				if !strings.Contains(reply, " 431 ") {
					t.Errorf("%s answered %.100q, want 431", listener, reply)
				}
				if sent > most+(8<<20) { // plus buffers of the kernel
					t.Errorf("%s accepted %d bytes of headers", listener, sent)
				}
			}
		})
		t.Run("10 MB of JSON", func(t *testing.T) {
			for range each {
				code, _ := fetch(t, http.MethodPost, addr, "/json", bytes.Repeat([]byte{' '}, 10<<20))
				if code != http.StatusRequestEntityTooLarge && code != 0 {
					t.Fatalf("the status is %d, want 413", code)
				}
			}
		})
		t.Run("pipelining", func(t *testing.T) { pipeline(t, addr, 1000) })
		t.Run("unknown paths", func(t *testing.T) {
			for _, listener := range []string{"http", "metrics"} {
				for _, path := range []string{
					"/../../../etc/passwd", "/healthcheck/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd",
					"//etc/passwd", "/json/../rlconfig", "/rlconfig", "/counters", "/debug/pprof/", "/debug/pprof/cmdline",
				} {
					code, reply := fetch(t, http.MethodGet, s.Addr(listener), path, nil)
					if code/100 == 2 || strings.Contains(reply, "root:") {
						t.Errorf("%s%s = %d %.100q", listener, path, code, reply)
					}
				}
			}
		})
		t.Run("invalid methods", func(t *testing.T) {
			for _, request := range []string{"BREW /json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "\x00\x01\x02\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
				if reply := sendText(t, addr, request); strings.HasPrefix(reply, "HTTP/1.1 2") {
					t.Errorf("%.20q got %.60q", request, reply)
				}
			}
		})
	}, nil)
	t.Log("effect on other clients: ", h)
	h.checkMemory(t, 0)
}

// TestDebugListenerIsLoopbackOnly checks that the debug listener is by default on loopback, and on
// no other address of this machine.
func TestDebugListenerIsLoopbackOnly(t *testing.T) {
	s := Start(t, Options{Rules: "domain: d\n"})
	_, port, err := net.SplitHostPort(s.Addr("debug"))
	must.OK(t, err)
	addrs, err := net.InterfaceAddrs()
	must.OK(t, err)
	others := 0
	for _, a := range addrs {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLoopback() || network.IP.IsLinkLocalUnicast() {
			continue
		}
		others++
		if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(network.IP.String(), port)); err == nil {
			_ = c.Close()
			t.Errorf("the debug listener accepts connections at %v", network.IP)
		}
	}
	t.Logf("%d addresses other than loopback", others)
	help, err := exec.CommandContext(t.Context(), binary, "serve", "--help-all").CombinedOutput()
	if err != nil || !strings.Contains(string(help), "127.0.0.1:6070") {
		t.Errorf("serve --help-all: %v, want a default of 127.0.0.1:6070 in:\n%s", err, help)
	}
}

// connect opens a connection that is closed when ctx ends, after [Patience].
func connect(t *testing.T, addr string) (c net.Conn, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	must.OK(t, err)
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, ctx
}

// sendRepeatedly sends first once, and then repeated until the server closes the connection. It
// returns the number of bytes sent and the reply.
func sendRepeatedly(t *testing.T, addr, first, repeated string) (sent int, reply string) {
	t.Helper()
	c, ctx := connect(t, addr)
	defer c.Close()
	received := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(c) // the connection may end with a reset
		received <- string(text)
	}()
	for text := first; ; text = repeated {
		n, err := io.WriteString(c, text)
		sent += n
		if err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("the connection accepted %d bytes and stays open", sent)
	}
	return sent, <-received
}

// fetch sends one request over a new connection, with an unescaped path. code is 0 if the
// connection ended during the request.
func fetch(t *testing.T, method, addr, path string, body []byte) (code int, reply string) {
	t.Helper()
	text := sendText(t, addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body))
	if _, err := fmt.Sscanf(text, "HTTP/1.1 %d", &code); err != nil && text != "" {
		t.Fatalf("%s %s: read %.100q: %v", method, path, text, err)
	}
	return code, text
}

// sendText sends text over a new connection and returns the bytes received until the connection
// ends.
func sendText(t *testing.T, addr, text string) string {
	t.Helper()
	c, ctx := connect(t, addr)
	defer c.Close()
	_, _ = io.WriteString(c, text) // the connection may end before all bytes are sent
	reply, _ := io.ReadAll(c)
	if ctx.Err() != nil {
		t.Fatalf("%.60q contains no complete response", text)
	}
	return string(reply)
}

// pipeline sends the given number of health requests at once on one connection.
func pipeline(t *testing.T, addr string, times int) {
	t.Helper()
	const ask = "GET /healthcheck HTTP/1.1\r\nHost: sluice\r\n\r\n"
	c, _ := connect(t, addr)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, strings.Repeat(ask, times)) }()
	in := bufio.NewReader(c)
	for i := range times {
		got, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil || got.StatusCode != http.StatusOK {
			t.Fatalf("response %d: %s, %v", i, got.Status, err)
		}
		must.OK(t, got.Body.Close())
	}
}
