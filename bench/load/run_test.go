package load

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// recorder replies with code and records the requested values.
type recorder struct {
	rls.UnimplementedRateLimitServiceServer
	code rls.RateLimitResponse_Code

	mu      sync.Mutex
	values  map[string]int
	clients map[string]bool // by address
}

func (r *recorder) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from, ok := peer.FromContext(ctx); ok {
		r.clients[from.Addr.String()] = true
	}
	r.values[request.GetDescriptors()[0].GetEntries()[0].GetValue()]++
	return &rls.RateLimitResponse{OverallCode: r.code}, nil
}

// serve serves r until the test ends, and returns its address.
func serve(t *testing.T, r *recorder) string {
	t.Helper()
	r.values, r.clients = map[string]int{}, map[string]bool{}
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
		Addrs: []string{serve(t, r)}, Connections: 2, InFlight: 6, Domain: "d", Entries: "k=v%d", Keys: 50, Fill: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OK != 50 || got.Answered != 50 || got.P50 <= 0 {
		t.Errorf("result = %+v, want 50 answers", got)
	}
	for value, n := range r.values {
		if n != 1 {
			t.Errorf("%s was requested %d times, want once", value, n)
		}
	}
	if len(r.values) != 50 {
		t.Errorf("%d values were requested, want 50", len(r.values))
	}
}

func TestOpenLoopMakesEveryCallThatIsDue(t *testing.T) {
	r := &recorder{code: rls.RateLimitResponse_OVER_LIMIT}
	got, err := Run(t.Context(), Config{
		Addrs: []string{serve(t, r)}, Connections: 1, InFlight: 2, Domain: "d", Entries: "k=%d", Keys: 1,
		Rate: 1000, Duration: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OverLimit != 20 {
		t.Errorf("result = %+v, want 20 answers OVER_LIMIT", got)
	}
}

// TestEveryConnectionIsUsed has fewer workers than connections, over two addresses.
func TestEveryConnectionIsUsed(t *testing.T) {
	often, once := &recorder{code: rls.RateLimitResponse_OK}, &recorder{code: rls.RateLimitResponse_OK}
	a, b := serve(t, often), serve(t, once)
	got, err := Idle(t.Context(), Config{
		Addrs: []string{a, a, b}, Connections: 9, InFlight: 2, Domain: "d", Entries: "k=%d", Keys: 1,
		Duration: time.Millisecond, PIDs: []int{os.Getpid()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OK != 9 || len(often.clients) != 6 || len(once.clients) != 3 {
		t.Errorf("%d calls over %d and %d connections, want 9 over 6 and 3", got.OK, len(often.clients), len(once.clients))
	}
	got, err = Run(t.Context(), Config{
		Addrs: []string{b}, Connections: 1, InFlight: 4, Domain: "d", Entries: "k=%d", Keys: 20, Fill: true,
	})
	if err != nil || got.OK != 20 || len(once.clients) != 4 {
		t.Errorf("result %+v, %v over %d connections, want 20 answers over one more", got, err, len(once.clients)-3)
	}
}

func TestHTTP(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		status := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusInternalServerError}[len(got)%3]
		got[r.Header.Get("user")+r.Header.Get("plan")]++
		http.Error(w, "a body", status)
	}))
	defer s.Close()
	r, err := Run(t.Context(), Config{
		Addrs: []string{s.Listener.Addr().String()}, HTTP: true, Connections: 2, InFlight: 2,
		Domain: "d", Entries: "user=u%d;plan=free", Keys: 9, Fill: true,
	})
	if err != nil || r.OK != 3 || r.OverLimit != 3 || r.Unknown != 3 || r.Errors != 0 {
		t.Errorf("result %+v, %v, want three of each answer", r, err)
	}
	if len(got) != 9 || got["u8free"] != 1 {
		t.Errorf("headers %v, want those of nine users", got)
	}
}
