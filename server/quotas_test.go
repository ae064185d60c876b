package server

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// Tests with the rate limit quota service of package rlqs. Without this file, the server of tests
// has none.
func init() { //nolint:gochecknoinits // so that deleting this file suffices
	newQuotas = func(o quota.Options) quota.Service { return rlqs.New(o) }
}

// TestGRPCGoDrains stops a server with a delayed call, a health watch, a reflection stream and a
// quota stream. The call is answered, and the streams end with UNAVAILABLE.
func TestGRPCGoDrains(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, `
domain: d
descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s}}]
---
domain: divided
descriptors:
  - { key: k, rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {} } }
`)
	r := serve(t, s, Options{Transport: transportGRPC, DrainTimeout: time.Hour})
	conn := r.dial(t)
	streams := map[string]func() error{}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	streams["watch"] = func() error { _, err := watch.Recv(); return err }
	reflection, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	streams["reflection"] = func() error { _, err := reflection.Recv(); return err }

	quotas, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err == nil {
		err = quotas.Send(&rlqsv3.RateLimitQuotaUsageReports{
			Domain: "divided",
			BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{{
				BucketId:    &rlqsv3.BucketId{Bucket: map[string]string{"sluice": "k", "k": "v"}},
				TimeElapsed: durationpb.New(time.Second), NumRequestsAllowed: 1,
			}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	streams["quotas"] = func() error { _, err := quotas.Recv(); return err }
	for name, next := range map[string]func() error{"watch": streams["watch"], "quotas": streams["quotas"]} {
		if err := next(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	limits := rls.NewRateLimitServiceClient(conn)
	if _, err := limits.ShouldRateLimit(t.Context(), simpleRequest()); err != nil {
		t.Fatal(err)
	}
	delayed := make(chan error, 1)
	go func() {
		_, err := limits.ShouldRateLimit(t.Context(), simpleRequest())
		delayed <- err
	}()
	await(t, "a call is delayed", func() bool { return testutil.ToFloat64(s.Metrics().DelayedResponses) == 1 })
	r.stop()
	if err := <-delayed; err != nil {
		t.Errorf("the delayed call: %v", err)
	}
	for name, next := range streams {
		err := error(nil)
		for err == nil {
			err = next()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s ends with %v, want UNAVAILABLE", name, err)
		}
	}
}

// leadershipRequests counts requests for leaderships.
type leadershipRequests struct{ atomic.Int64 }

func (r *leadershipRequests) AcquireLeadership(string, time.Duration, []string, func(int, string)) {
	r.Add(1)
}

// TestListenEndsQuotas makes each listener fail. The quota service, which requests leaderships
// periodically, must stop.
func TestListenEndsQuotas(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, options := range map[string]Options{
		"grpc": {GRPCAddr: taken.Addr().String()}, "http": {HTTPAddr: taken.Addr().String()},
	} {
		synctest.Test(t, func(t *testing.T) {
			var requests leadershipRequests
			options.Elector, options.NewQuotas = &requests, newQuotas
			if err := New(options, service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {}}}]}"), zap.NewNop()).Listen(t.Context()); err == nil {
				t.Fatalf("the %s listener is open, want an error", name)
			}
			synctest.Wait()
			first := requests.Load()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := requests.Load() - first; n > 0 {
				t.Errorf("after the %s listener failed, %d requests for leaderships were made, want none", name, n)
			}
		})
	}
}
