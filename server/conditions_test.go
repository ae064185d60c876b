package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// activeConditions returns the active conditions of a service.
func activeConditions(s *answer.Service) []telemetry.Condition {
	return s.Metrics().Conditions.Active(time.Now())
}

// expectCondition fails the test unless code is the only active condition, has occurred count
// times, and ends within two minutes. It returns the condition.
func expectCondition(t *testing.T, s *answer.Service, code telemetry.Code, count uint64) telemetry.Condition {
	t.Helper()
	active := activeConditions(s)
	if len(active) != 1 || active[0].Code != code || active[0].Fields["count"] != count {
		t.Fatalf("the conditions are %+v, want %s %d times", active, code, count)
	}
	if later := s.Metrics().Conditions.Active(time.Now().Add(2 * time.Minute)); len(later) > 0 {
		t.Errorf("two minutes later the conditions are %+v, want none", later)
	}
	return active[0]
}

// expectOneLine fails the test unless the log has exactly one line about the condition, with the
// last peer and a remedy.
func expectOneLine(t *testing.T, logs *observer.ObservedLogs, c *telemetry.Condition) {
	t.Helper()
	lines := logs.FilterField(zap.String("condition", string(c.Code))).All()
	if len(lines) != 1 {
		t.Fatalf("the log has %d lines about %s, want 1 in ten seconds", len(lines), c.Code)
	}
	m := lines[0].ContextMap()
	if peer := fmt.Sprint(m["peer"]); !strings.HasPrefix(peer, "127.0.0.1:") || m["remedy"] != c.Code.Define().Remedy {
		t.Errorf("the line has the fields %v, want the peer and the remedy", m)
	}
	if last := fmt.Sprint(c.Fields["peer"]); !strings.HasPrefix(last, "127.0.0.1:") {
		t.Errorf("the last peer is %q", last)
	}
}

// TestConditionsOfRejectedRequests sends each kind of invalid request, over gRPC and to /json.
func TestConditionsOfRejectedRequests(t *testing.T) {
	const times = 20
	for name, tt := range map[string]struct {
		request []byte
		code    telemetry.Code
		reason  string
	}{
		"no domain":       {marshal(t, &rls.RateLimitRequest{Descriptors: simpleRequest().GetDescriptors()}), telemetry.RequestsWithoutDomain, "no_domain"},
		"no descriptors":  {marshal(t, &rls.RateLimitRequest{Domain: "d"}), telemetry.RequestsWithoutDescriptors, "no_descriptors"},
		"malformed":       {[]byte{0xff}, telemetry.RequestsMalformed, "malformed"},
		"too many":        {marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: many(5)}), telemetry.RequestsBeyondBounds, "descriptors"},
		"a large message": {make([]byte, 2000), telemetry.RequestsBeyondBounds, "message"},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, answer.Settings{Bounds: answer.Bounds{Descriptors: 4, MessageBytes: 1000}}, oneRule)
			r := serve(t, s, Options{Limits: transport.Limits{MaxMessageBytes: 1000}})
			conn := r.dial(t, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
			for range times {
				var reply []byte
				if err := conn.Invoke(t.Context(), "/"+answer.ServiceName+"/ShouldRateLimit", tt.request, &reply); err == nil {
					t.Fatal("the request has a reply, want an error")
				}
			}
			c := expectCondition(t, s, tt.code, times)
			expectOneLine(t, r.logs, &c)
			if got := gathered(t, s, "sluice_rejected_requests_total"); got[tt.reason] != times {
				t.Errorf("rejected requests are %v, want %d of reason %s", got, times, tt.reason)
			}
		})
	}
	t.Run("no rules", func(t *testing.T) {
		s := service(t, answer.Settings{}, "")
		r := serve(t, s, Options{})
		conn := r.dial(t)
		for range times {
			if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), simpleRequest()); err == nil {
				t.Fatal("the request has a reply, want an error")
			}
		}
		c := expectCondition(t, s, telemetry.RequestsWithoutRules, times)
		expectOneLine(t, r.logs, &c)
	})
	t.Run("json", func(t *testing.T) {
		s := service(t, answer.Settings{}, oneRule)
		r := serve(t, s, Options{})
		post := func(body string) {
			t.Helper()
			send(t, http.MethodPost, "http://"+r.addr["http"]+"/json", body)
		}
		post(`{"domain":"d"}`)
		expectCondition(t, s, telemetry.RequestsWithoutDescriptors, 1)
		post(`{"dom`)
		c := expectCondition(t, s, telemetry.RequestsMalformed, 1)
		expectOneLine(t, r.logs, &c)
	})
}

// TestValidRequestsRaiseNoCondition checks that admitted and denied requests raise no condition.
func TestValidRequestsRaiseNoCondition(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{})
	conn := r.dial(t)
	for range 10 {
		checkOK(t, conn)
	}
	if active := activeConditions(s); len(active) > 0 {
		t.Errorf("the conditions are %+v, want none", active)
	}
}

// TestConditionOfDeniedRequests requests a domain that --grpc-allow does not grant.
func TestConditionOfDeniedRequests(t *testing.T) {
	g := serveGuarded(t, Options{}, shopEnvoy+"=d")
	conn := g.dialAs(t, shopEnvoy)
	for range 3 {
		if err := requestDomain(t, conn, "other"); err == nil {
			t.Fatal("the request has a reply, want an error")
		}
	}
	c := expectCondition(t, g.service, telemetry.RequestsNotAllowed, 3)
	expectOneLine(t, g.logs, &c)
}

// TestConditionOfGRPCOnHTTPPorts sends gRPC to each HTTP/1 listener: with the HTTP/2 preface, and
// in an HTTP/1 upgrade request, as clients without prior knowledge do.
func TestConditionOfGRPCOnHTTPPorts(t *testing.T) {
	upgrade := "POST /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc+proto\r\n" +
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 0\r\n\r\n"
	for _, listener := range []string{"http", "debug", "metrics"} {
		for kind, hello := range map[string]string{"preface": http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "upgrade": upgrade} {
			t.Run(listener+" "+kind, func(t *testing.T) {
				s := service(t, answer.Settings{}, oneRule)
				r := serve(t, s, Options{})
				for range 5 {
					conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.addr[listener])
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.WriteString(conn, hello); err != nil {
						t.Fatal(err)
					}
					answer, err := io.ReadAll(conn)
					_ = conn.Close()
					if !strings.Contains(string(answer), "gRPC is served at --grpc-addr, by default port 8081") {
						t.Errorf("response = %q, %v; want the address of gRPC", answer, err)
					}
				}
				c := expectCondition(t, s, telemetry.GRPCOnHTTPPort, 5)
				expectOneLine(t, r.logs, &c)
				if !strings.Contains(c.Remedy, "point Envoy's cluster at the port of --grpc-addr") {
					t.Errorf("the remedy is %q", c.Remedy)
				}
				if n := r.logs.FilterField(zap.String("listener", listener)).FilterMessageSnippet("gRPC").Len(); n != 1 {
					t.Errorf("%d lines name the listener, want 1", n)
				}
			})
		}
	}
}

// TestConditionOfHTTPOnGRPCPort sends HTTP/1 to the port of gRPC, as Envoy does without
// http2_protocol_options.
func TestConditionOfHTTPOnGRPCPort(t *testing.T) {
	for _, name := range []string{transportBuiltin, transportGRPC} {
		t.Run(name, func(t *testing.T) {
			s := service(t, answer.Settings{}, oneRule)
			r := serve(t, s, Options{Transport: name})
			for range 3 {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.addr["grpc"])
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				_, _ = io.ReadAll(conn)
				_ = conn.Close()
			}
			c := expectCondition(t, s, telemetry.HTTPOnGRPCPort, 3)
			expectOneLine(t, r.logs, &c)
			if !strings.Contains(c.Remedy, "http2_protocol_options") {
				t.Errorf("the remedy is %q", c.Remedy)
			}
		})
	}
}

// TestConditionOfRejectedConnections opens more connections than are admitted.
func TestConditionOfRejectedConnections(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{Limits: transport.Limits{MaxConnections: 1}})
	watch(t, r.dial(t))
	awaitEnd(r.connect(t, ""))
	expectCondition(t, s, telemetry.ConnectionsRejected, 1)
}

// TestConditionOfDrain stops a server while a store is deciding.
func TestConditionOfDrain(t *testing.T) {
	store := &asyncStore{manual: true}
	s := serviceWithStore(t, store, shaping)
	r := serve(t, s, Options{}, func(srv *Server) { srv.logger = s.Metrics().Events.Watch(srv.logger) })
	result := make(chan error, 1)
	client := rls.NewRateLimitServiceClient(r.dial(t))
	go func() {
		_, err := client.ShouldRateLimit(t.Context(), simpleRequest())
		result <- err
	}()
	store.await(1)
	r.stop()
	codes := func() (all []telemetry.Code) {
		for _, c := range activeConditions(s) {
			all = append(all, c.Code)
		}
		return all
	}
	await(t, "the server drains", func() bool { return slices.Equal(codes(), []telemetry.Code{telemetry.Draining}) })
	store.decide(1)
	if err := <-result; err != nil {
		t.Error(err)
	}
	await(t, "the end of the drain", func() bool { return len(codes()) == 0 })
}

// TestPeersAreBoundedAndSanitised sends requests from a client that chooses its address, as the
// client of a Unix socket can.
func TestPeersAreBoundedAndSanitised(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	h := answer.NewHandler(s, zap.NewNop(), nil, false)
	hostile := httpPeer("@\x1b[2J\n" + strings.Repeat("é", 1000))
	b := s.Connect("a")
	b.Addr = hostile
	for range 10_000 {
		if err := h.Answer(t.Context(), &answer.Exchange{Request: []byte{0xff}, Connection: b}, nil); err == nil {
			t.Fatal(errors.New("the request has a reply"))
		}
	}
	c := expectCondition(t, s, telemetry.RequestsMalformed, 10_000)
	text := fmt.Sprint(c.Fields["peer"])
	if len(text) > 64 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.HasPrefix(text, "@?[2J?") {
		t.Errorf("the peer is %q", text)
	}
}

// TestStatusCounts sends calls that are admitted, denied and answered with an error.
func TestStatusCounts(t *testing.T) {
	for _, transport := range []string{transportBuiltin, "grpc-go"} {
		t.Run(transport, func(t *testing.T) {
			s := service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 3}}]}")
			r := serve(t, s, Options{Transport: transport})
			client := rls.NewRateLimitServiceClient(r.dial(t))
			for range 5 {
				if _, err := client.ShouldRateLimit(t.Context(), simpleRequest()); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); err == nil {
					t.Error("a request without a domain is answered without an error")
				}
			}
			await(t, "the count of all calls", func() bool { return s.Metrics().Calls.Totals().Calls == 7 })
			if got := s.Metrics().Calls.Totals(); got.Denied != 2 || got.Errors != 2 {
				t.Errorf("%d calls are denied and %d have errors, want 2 each", got.Denied, got.Errors)
			}
			status := r.admin.State(time.Now(), admin.AllRules).Status
			if status.Connections != 1 || status.Store != live.StoreNone {
				t.Errorf("the status is %+v, want one connection and no store", status)
			}
		})
	}
}
