package server

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestDrainSendsDelayedReplies stops a server while replies are delayed. All must be sent.
func TestDrainSendsDelayedReplies(t *testing.T) {
	s := service(t, answer.Settings{}, shaping)
	r := serve(t, s, Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	const calls = 20
	results := make(chan error, calls)
	for range calls {
		go func() {
			reply, err := client.ShouldRateLimit(t.Context(), simpleRequest())
			if err == nil && reply.GetOverallCode() != rls.RateLimitResponse_OK {
				err = status.Error(codes.ResourceExhausted, "denied")
			}
			results <- err
		}()
	}
	for testutil.ToFloat64(s.Metrics().Calls.ShouldRateLimit.Requests) < calls {
		runtime.Gosched() // until all calls have a reply or are delayed
	}
	r.stop()
	for range calls {
		if err := <-results; err != nil {
			t.Errorf("a delayed call failed: %v", err)
		}
	}
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// TestDrainSendsDelayedJSON stops a server while a reply to /json is delayed. It is sent unless its
// delay exceeds the drain timeout.
func TestDrainSendsDelayedJSON(t *testing.T) {
	const rule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: leaky_bucket, slack: 0, max_wait: 1m, max_waiting: 2}}]}"
	for timeout, after := range map[time.Duration]time.Duration{30 * time.Second: 20 * time.Second, 15 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			l := &pipes{make(chan net.Conn), make(chan struct{})}
			open := func(context.Context, string, fs.FileMode) (net.Listener, error) { return l, nil }
			srv := New(Options{HTTPAddr: "pipes", JSON: true, Limits: fillLimits(Options{}.Limits), DrainTimeout: timeout, OpenListener: open}, service(t, answer.Settings{}, rule), zap.NewNop())
			if err := srv.Listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- srv.Run(ctx) }()
			client := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				l.accepted <- theirs
				return ours, nil
			}}
			defer client.CloseIdleConnections()
			post := func() (code int, err error) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/json", strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`))
				if err != nil {
					return 0, err
				}
				reply, err := client.RoundTrip(r)
				if err != nil {
					return 0, err
				}
				return reply.StatusCode, reply.Body.Close()
			}
			if code, err := post(); code != 200 || err != nil {
				t.Fatalf("the first request = %d, %v", code, err)
			}
			start := time.Now()
			time.AfterFunc(time.Second, stop)
			code, err := post()
			if took := time.Since(start); after > 0 && (code != 200 || err != nil || took != after) || after == 0 && err == nil {
				t.Errorf("with a drain timeout of %v, the delayed request = %d, %v after %v, want 200 after %v", timeout, code, err, took, after)
			}
			if err := <-done; err != nil {
				t.Errorf("Run() = %v", err)
			}
		})
	}
}
