package envoyconfig_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// caseHeader identifies the client request of a call. Filters copy it into the call.
const caseHeader = "x-case"

// recorder is a rate limit service that allows everything and records the calls.
type recorder struct {
	rls.UnimplementedRateLimitServiceServer

	addr string
	mu   sync.Mutex
	// calls are the calls by case.
	calls map[string][]call
}

// call is a domain and descriptors, formatted as text.
type call struct {
	domain      string
	descriptors []string
	// timeout is Envoy's timeout in milliseconds.
	timeout string
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: l.Addr().String(), calls: map[string][]call{}}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, r)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return r
}

func (r *recorder) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	headers, _ := metadata.FromIncomingContext(ctx)
	c := call{domain: request.GetDomain(), timeout: strings.Join(headers.Get("x-envoy-expected-rq-timeout-ms"), ",")}
	for _, d := range request.GetDescriptors() {
		var b strings.Builder
		for _, e := range d.GetEntries() {
			b.WriteString("(" + e.GetKey() + ", " + e.GetValue() + ")")
		}
		if d.GetHitsAddend() != nil {
			b.WriteString(" x" + strconv.FormatUint(d.GetHitsAddend().GetValue(), 10))
		}
		if d.GetIsNegativeHits() {
			b.WriteString(" back")
		}
		if l := d.GetLimit(); l != nil {
			fmt.Fprintf(&b, " limit %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
		}
		c.descriptors = append(c.descriptors, b.String())
	}
	name := strings.Join(headers.Get(caseHeader), ",")
	r.mu.Lock()
	r.calls[name] = append(r.calls[name], c)
	r.mu.Unlock()
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// await returns the calls of a case once there are n, or when late is closed. Calls for the end of
// a stream arrive late.
func (r *recorder) await(name string, n int, late <-chan struct{}) []call {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(r.callsOf(name)) < n {
		select {
		case <-tick.C:
		case <-late:
			return r.callsOf(name)
		}
	}
	return r.callsOf(name)
}

// callsSince returns the calls without a case, except for the given number of first ones.
func (r *recorder) callsSince(first int) []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls[""][first:])
}

// callsOf returns the calls of a case, sorted by text, because those for the end of a stream arrive
// at any time.
func (r *recorder) callsOf(name string) []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.calls[name])
	slices.SortFunc(all, func(a, b call) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (c call) String() string { return c.domain + ": " + strings.Join(c.descriptors, "; ") }
