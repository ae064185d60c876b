package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/cpu"
)

// takeTasks uses all tokens that tasks may use, until the returned function is called.
func (s *Server) takeTasks() (release func()) {
	var tasks []*cpu.Task
	for kind, n := range map[cpu.Kind]int{cpu.Handshake: max(1, runtime.GOMAXPROCS(0)/2), cpu.Scrape: max(1, runtime.GOMAXPROCS(0)/4)} {
		for range n {
			task := s.tokens.NewTask(cpu.Source{Kind: kind, Address: netip.IPv6Loopback()})
			task.Resume()
			tasks = append(tasks, task)
		}
	}
	return func() {
		for _, task := range tasks {
			task.Pause()
		}
	}
}

// TestWorkOfClientsNeedsTokens uses up the tokens of tasks. Everything that a client can cause, but
// for calls on a connection, waits for them, and ends without one.
func TestWorkOfClientsNeedsTokens(t *testing.T) {
	ca, pair := serverFiles(t)
	secure := access.TLSOptions{Cert: pair.Cert, Key: pair.Key}
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{TLS: serverTLS(t, secure), DebugTLS: serverTLS(t, secure), JSONAddr: "127.0.0.1:0"})
	client := clientTLS(t, access.TLSOptions{CA: pair.CA})
	conn, err := grpc.NewClient("passthrough:///"+r.addr["grpc"], grpc.WithTransportCredentials(client))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	checkOK(t, conn)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	handshake := func(listener, protocol string) func() error {
		return func() error {
			dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{protocol}}}
			conn, err := dialer.DialContext(t.Context(), "tcp", r.addr[listener])
			if err == nil {
				err = conn.Close()
			}
			return err
		}
	}
	reflect, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := func(method, url, body string) func() error {
		// The connection exists already, so that its handshake does not wait.
		transport := &http.Transport{TLSClientConfig: client.HTTPClient()}
		t.Cleanup(transport.CloseIdleConnections)
		ask := func(method, url, body string) error {
			q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			if err != nil {
				return err
			}
			w, err := transport.RoundTrip(q)
			if err == nil && w.StatusCode/100 != 2 {
				err = fmt.Errorf("status %d", w.StatusCode)
			}
			if w != nil {
				_ = w.Body.Close()
			}
			return err
		}
		if err := ask(method, url, body); err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
		return func() error { return ask(method, url, body) }
	}
	debug := "https://" + r.addr["debug"]
	for name, do := range map[string]func() error{
		"json":     request("POST", "https://"+r.addr["json"]+"/json", `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`),
		"metrics":  request("GET", "http://"+r.addr["metrics"]+"/metrics", ""),
		"page":     request("GET", debug+"/", ""),
		"state":    request("GET", debug+admin.StatePath, ""),
		"rules":    request("GET", debug+"/rlconfig", ""),
		"counters": request("GET", debug+admin.CountersPath+"?domain=d&descriptor=k=v", ""),
		"tables":   request("GET", debug+admin.TablesPath, ""),
		"profile":  request("GET", debug+"/debug/pprof/heap", ""),
		"health": func() error {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			return err
		},
		"reflection": func() error {
			err := reflect.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
			if err == nil {
				_, err = reflect.Recv()
			}
			return err
		},
		"handshake": handshake("grpc", "h2"), "handshake of json": handshake("json", "http/1.1"), "handshake of debug": handshake("debug", "http/1.1"),
	} {
		release := r.takeTasks()
		done := make(chan error, 1)
		go func() { done <- do() }()
		await(t, name+" waits for a token", func() bool { return r.tokens.Waiting() > 0 || len(done) > 0 })
		for range 10 {
			checkOK(t, conn)
		}
		if len(done) > 0 {
			t.Errorf("%s needs no token", name)
		}
		release()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		await(t, name+" has released its token", func() bool {
			_, tasks := r.tokens.InUse()
			return tasks == 0 && r.tokens.Waiting() == 0
		})
	}
}
