//go:build torture

package torture

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEachLimit lowers every limit on clients and exceeds it, while other clients call.
func TestEachLimit(t *testing.T) {
	const mostConnections = 100
	h := runUnderAttack(t, Options{Args: []string{
		"--max-message=4KiB", "--max-descriptors=100", "--max-entries=4", "--max-key-length=32",
		"--max-streams=64", "--max-header-size=4KiB", "--connection-timeout=1m", "--max-connections=100", "--keepalive-min-time=1m",
	}}, func(s *sluice.Sluice) {
		t.Run("request size", func(t *testing.T) { checkRequestLimits(t, s) })
		t.Run("streams", func(t *testing.T) {
			c := dialHostile(t, s, hostile.ConnOptions{})
			for i := range uint32(100) {
				must.OK(t, c.Open(1+2*i))
			}
			suite.Eventually(t, "36 of 100 streams are reset", func() bool { return c.Replies().Resets["REFUSED_STREAM"] == 36 })
			if got := c.Replies().Streams; got != 64 {
				t.Errorf("sluice allows %d streams, want 64", got)
			}
		})
		t.Run("connections", func(t *testing.T) {
			var open, closed int
			for range mostConnections + 50 {
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr("grpc"))
				must.OK(t, err)
				defer c.Close()
				open++
			}
			suite.Eventually(t, "connections beyond the limit are rejected", func() bool {
				closed = int(suite.Metrics(t, s).Sum("sluice_rejected_connections_total"))
				return closed >= 50
			})
			t.Logf("%d of %d connections were rejected", closed, open)
		})
		t.Run("too many PINGs", func(t *testing.T) {
			c := dialHostile(t, s, hostile.ConnOptions{})
			for range 4 {
				must.OK(t, c.Ping())
			}
			awaitEnd(t, c)
			if got := c.Replies().GoAway; !strings.Contains(got, "too_many_pings") {
				t.Errorf("GOAWAY is %q, want too_many_pings", got)
			}
		})
	}, nil)
	h.checkMemory(t, 0)
}

// TestEachTimeout lowers every timeout of connections and exceeds it. There are no other clients,
// which a busy machine would delay too. It may also delay the clients of the cases, so that sluice
// closes their connections for another reason; therefore each case has several attempts.
func TestEachTimeout(t *testing.T) {
	Parallel(t)
	s := Start(t, Options{Rules: NewLedger(1, 1).Rules(), Args: []string{
		"--connection-timeout=500ms", "--max-connection-idle=2s", "--keepalive-time=1s", "--keepalive-timeout=500ms",
	}})
	t.Run("handshake", func(t *testing.T) {
		hello := hostile.Preface()
		checkEnded(t, s.Addr("grpc"), 10, nil, hello[:10], hello[:24], hello[:30])
	})
	for name, tt := range map[string]struct {
		options hostile.ConnOptions
		active  bool // it has a call
		check   func(t *testing.T, c *hostile.Conn) bool
	}{
		"idleness": {check: func(t *testing.T, c *hostile.Conn) bool {
			t.Helper()
			awaitEnd(t, c)
			return strings.Contains(c.Replies().GoAway, "max_idle")
		}},
		"unanswered PINGs": {options: hostile.ConnOptions{IgnorePings: true}, active: true, check: func(t *testing.T, c *hostile.Conn) bool {
			t.Helper()
			awaitEnd(t, c)
			return !strings.Contains(c.Replies().GoAway, "max_idle")
		}},
		"answered PINGs": {active: true, check: func(t *testing.T, c *hostile.Conn) bool {
			t.Helper()
			suite.Eventually(t, "another PING", func() bool { return c.Replies().Pings == 2 || isEnded(c) })
			return !isEnded(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			Parallel(t)
			for range 10 {
				c := dialHostile(t, s, tt.options)
				if tt.active && c.Open(1) != nil {
					continue
				}
				if tt.check(t, c) {
					return
				}
				t.Logf("GOAWAY is %q, and %d PINGs were received", c.Replies().GoAway, c.Replies().Pings)
			}
			t.Error("the connection was not closed, or not kept, for the expected reason")
		})
	}
}

// checkRequestLimits sends requests just within and just beyond each bound.
func checkRequestLimits(t *testing.T, s *sluice.Sluice) {
	t.Helper()
	client := rls.NewRateLimitServiceClient(Dial(t, s.Addr("grpc")))
	entry := func(key, value int) *rlcommon.RateLimitDescriptor_Entry {
		return &rlcommon.RateLimitDescriptor_Entry{Key: strings.Repeat("k", key), Value: strings.Repeat("v", value)}
	}
	// newRequest returns a request with the given numbers of descriptors and entries and the given
	// sizes of keys and values.
	newRequest := func(descriptors, entries, key, value int) *rls.RateLimitRequest {
		r := &rls.RateLimitRequest{Domain: "torture"}
		for range descriptors {
			d := new(rlcommon.RateLimitDescriptor)
			for range entries {
				d.Entries = append(d.Entries, entry(key, value))
			}
			r.Descriptors = append(r.Descriptors, d)
		}
		return r
	}
	// sized returns a request of the given size.
	sized := func(bytes int) *rls.RateLimitRequest {
		r := newRequest(4, 1, 1, 1000)
		r.Domain += strings.Repeat("x", bytes-proto.Size(r))
		return r
	}
	for _, tt := range []struct {
		name           string
		within, beyond *rls.RateLimitRequest
	}{
		{"size", sized(4 << 10), sized(4<<10 + 1)},
		{"descriptors", newRequest(100, 1, 1, 1), newRequest(101, 1, 1, 1)},
		{"entries", newRequest(1, 4, 1, 1), newRequest(1, 5, 1, 1)},
		{"keys", newRequest(1, 1, 32, 1), newRequest(1, 1, 33, 1)},
	} {
		for range 50 {
			if _, err := client.ShouldRateLimit(t.Context(), tt.within); err != nil {
				t.Errorf("%s within the bound: %v", tt.name, err)
			}
			if _, err := client.ShouldRateLimit(t.Context(), tt.beyond); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s beyond the bound: %v, want RESOURCE_EXHAUSTED", tt.name, err)
			}
		}
	}
	large := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("~", 3<<10))
	if _, err := client.ShouldRateLimit(large, newRequest(1, 1, 1, 1)); err != nil {
		t.Errorf("headers within the bound: %v", err)
	}
	larger := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("~", 4<<10))
	if _, err := client.ShouldRateLimit(larger, newRequest(1, 1, 1, 1)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("headers beyond the bound: %v, want RESOURCE_EXHAUSTED", err)
	}
	if code := headersOverHTTP(t, s, 15<<10); code != http.StatusOK {
		t.Errorf("headers over HTTP within the bound: %d, want 200", code)
	}
	// net/http allows 4 KiB more than configured.
	if code := headersOverHTTP(t, s, 21<<10); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("headers over HTTP beyond the bound: %d, want 431", code)
	}
}

// headersOverHTTP requests /healthcheck with headers of the given size and returns the status.
func headersOverHTTP(t *testing.T, s *sluice.Sluice, bytes int) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr("http")+"/healthcheck", http.NoBody)
	must.OK(t, err)
	r.Close = true
	r.Header.Set("X", strings.Repeat("x", bytes))
	got, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	must.OK(t, got.Body.Close())
	return got.StatusCode
}

// dialHostile connects, and closes the connection when the test ends.
func dialHostile(t *testing.T, s *sluice.Sluice, m hostile.ConnOptions) *hostile.Conn {
	t.Helper()
	c, err := hostile.Dial(t.Context(), s.Addr("grpc"), m)
	must.OK(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		if !m.NeverRead {
			<-c.Ended()
		}
	})
	return c
}

func isEnded(c *hostile.Conn) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return false
	}
}

// awaitEnd waits until sluice closes the connection.
func awaitEnd(t *testing.T, c *hostile.Conn) {
	t.Helper()
	suite.Eventually(t, "sluice closes the connection", func() bool { return isEnded(c) })
}

// checkEnded opens the given number of connections for each text, sends the text, and fails the
// test if the server does not close all of them.
func checkEnded(t *testing.T, addr string, each int, texts ...[]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	open := make(map[net.Conn]int)
	for i, bytes := range texts {
		for range each {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			must.OK(t, err)
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			open[c] = i
			_, _ = c.Write(bytes) // the server may have closed it after the first bytes
		}
	}
	for c, i := range open {
		if _, err := io.Copy(io.Discard, c); ctx.Err() != nil {
			t.Fatalf("a connection that sent %.40q stays open: %v", texts[i], err)
		}
	}
}
