package load

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// recorder answers with code and notes the values that it is asked for.
type recorder struct {
	rls.UnimplementedRateLimitServiceServer
	code rls.RateLimitResponse_Code
	err  error

	mu     sync.Mutex
	values map[string]int
}

func (r *recorder) ShouldRateLimit(_ context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values[request.GetDescriptors()[0].GetEntries()[0].GetValue()]++
	return &rls.RateLimitResponse{OverallCode: r.code}, r.err
}

// serve serves r for the time of a test and returns its address.
func serve(t *testing.T, r *recorder) string {
	t.Helper()
	r.values = map[string]int{}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

func TestFillCallsEachKeyOnce(t *testing.T) {
	r := &recorder{code: rls.RateLimitResponse_OK}
	got, err := Run(t.Context(), Config{
		Addr: serve(t, r), Connections: 2, InFlight: 3, Domain: "d", Entries: "k=v%d", Keys: 50, Fill: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OK != 50 || got.Answered != 50 || got.Mode != "closed" || got.Latency.P50 <= 0 {
		t.Errorf("result = %+v, want 50 answers", got)
	}
	for value, n := range r.values {
		if n != 1 {
			t.Errorf("%s came %d times, want once", value, n)
		}
	}
	if len(r.values) != 50 {
		t.Errorf("%d values came, want 50", len(r.values))
	}
}

func TestOpenLoopMakesEveryCallThatIsDue(t *testing.T) {
	r := &recorder{code: rls.RateLimitResponse_OVER_LIMIT}
	got, err := Run(t.Context(), Config{
		Addr: serve(t, r), Connections: 1, InFlight: 2, Domain: "d", Entries: "k=%d", Keys: 1,
		Rate: 1000, Duration: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OverLimit != 20 || got.Mode != "open" || got.SendLag == nil {
		t.Errorf("result = %+v, want 20 answers OVER_LIMIT", got)
	}
}

func TestErrorsAreCounted(t *testing.T) {
	r := &recorder{err: errors.New("no")}
	got, err := Run(t.Context(), Config{
		Addr: serve(t, r), Connections: 1, InFlight: 1, Domain: "d", Entries: "k=%d", Keys: 3, Fill: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Errors != 3 || got.Answered != 0 || got.LastError == "" {
		t.Errorf("result = %+v, want 3 errors", got)
	}
}

func TestWrongConfigs(t *testing.T) {
	good := Config{Connections: 1, InFlight: 1, Keys: 1, Duration: time.Second}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no connections":    func(c *Config) { c.Connections = 0 },
		"none in flight":    func(c *Config) { c.InFlight = 0 },
		"no keys":           func(c *Config) { c.Keys = 0 },
		"negative rate":     func(c *Config) { c.Rate = -1 },
		"negative warm-up":  func(c *Config) { c.Warmup = -1 },
		"no duration":       func(c *Config) { c.Duration = 0 },
		"fill with a rate":  func(c *Config) { c.Fill, c.Rate = true, 1 },
		"negative deadline": func(c *Config) { c.Timeout = -1 },
	} {
		c := good
		spoil(&c)
		if err := c.validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
