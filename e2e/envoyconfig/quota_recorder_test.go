package envoyconfig_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// quotaRecorder is a rate limit quota service that records reports and sends the assignments of a
// test.
type quotaRecorder struct {
	rlqs.UnimplementedRateLimitQuotaServiceServer

	addr string

	mu      sync.Mutex
	streams []rlqs.RateLimitQuotaService_StreamRateLimitQuotasServer
	ids     map[string]*rlqs.BucketId // of all buckets that were reported, by their text
	reports int
}

func startQuotaRecorder(t *testing.T) *quotaRecorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &quotaRecorder{addr: l.Addr().String(), ids: map[string]*rlqs.BucketId{}}
	s := grpc.NewServer()
	rlqs.RegisterRateLimitQuotaServiceServer(s, r)
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

func (r *quotaRecorder) StreamRateLimitQuotas(stream rlqs.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	r.mu.Lock()
	r.streams = append(r.streams, stream)
	r.mu.Unlock()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.reports++
		for _, u := range m.GetBucketQuotaUsages() {
			var entries []string
			for _, key := range slices.Sorted(maps.Keys(u.GetBucketId().GetBucket())) {
				entries = append(entries, key+"="+u.GetBucketId().GetBucket()[key])
			}
			r.ids[strings.Join(entries, " ")] = u.GetBucketId()
		}
		r.mu.Unlock()
	}
}

// reported returns the bucket IDs that were reported.
func (r *quotaRecorder) reported() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.ids)), "; ")
}

// assign sends an action for each reported bucket to every stream.
func (r *quotaRecorder) assign(t *testing.T, action *rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &rlqs.RateLimitQuotaResponse{}
	for _, id := range r.ids {
		m.BucketAction = append(m.BucketAction, &rlqs.RateLimitQuotaResponse_BucketAction{
			BucketId: id, BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{QuotaAssignmentAction: action},
		})
	}
	for _, stream := range r.streams {
		if err := stream.Send(m); err != nil && stream.Context().Err() == nil {
			t.Error(err)
		}
	}
}

// startEnvoy starts an Envoy that uses the recorder.
func (r *quotaRecorder) startEnvoy(t *testing.T, bootstrap []byte, backend string) *envoy.Envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	e, err := envoy.Start(ctx, envoy.Options{
		Binary: suite.Envoy(t, root), Bootstrap: bootstrap, Dir: t.TempDir(),
		Clusters: map[string][]string{"sluice": {r.addr}, "backend": {backend}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// outcome sends a request of a user and returns the outcome: passes, denied or dies.
func outcome(t *testing.T, e *envoy.Envoy, user string) string {
	t.Helper()
	client := &http.Client{Timeout: suite.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.Addr("ingress")+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.Header.Set("X-User", user)
	}
	reply, err := client.Do(request)
	if err != nil {
		return "dies"
	}
	_ = reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
		return "passes"
	case http.StatusTooManyRequests:
		return "denied"
	default:
		return reply.Status
	}
}
