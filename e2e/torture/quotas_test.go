//go:build torture

package torture

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// quotaDomain and quotaKey are the domain and key of the divided rule.
const quotaDomain, quotaKey = "torture", "divided"

// reportOf returns a usage report for the given bucket IDs.
func reportOf(allowed, denied uint64, elapsed time.Duration, ids ...string) *rlqs.RateLimitQuotaUsageReports {
	m := &rlqs.RateLimitQuotaUsageReports{Domain: quotaDomain}
	for _, id := range ids {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId:    &rlqs.BucketId{Bucket: map[string]string{"sluice": quotaKey, quotaKey: id}},
			TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
		})
	}
	return m
}

// quotaStream opens a stream of the quota service. It returns nil if ctx has ended.
func quotaStream(ctx context.Context, t *testing.T, conn grpc.ClientConnInterface, o ...grpc.CallOption) rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient {
	t.Helper()
	stream, err := rlqs.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx, o...)
	if err != nil && ctx.Err() == nil && status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if err != nil {
		return nil
	}
	return stream
}

// discardReplies reads replies until the stream ends.
func discardReplies(stream grpc.ClientStream) {
	for stream.RecvMsg(&rlqs.RateLimitQuotaResponse{}) == nil {
	}
}

// flood continuously sends the messages returned by next, on one stream after another, until ctx
// ends. If neverRead, it reads no replies.
func flood(neverRead bool, o []grpc.CallOption, next func(n int) *rlqs.RateLimitQuotaUsageReports) func(context.Context, *testing.T, string) {
	return func(ctx context.Context, t *testing.T, addr string) {
		t.Helper()
		conn := Dial(t, addr)
		defer conn.Close()
		for n := 0; ctx.Err() == nil; {
			stream := quotaStream(ctx, t, conn, o...)
			if stream == nil {
				continue
			}
			if !neverRead {
				go discardReplies(stream)
			}
			for ; stream.Send(next(n)) == nil; n++ {
			}
		}
	}
}

// ids returns the given number of new IDs.
func ids(n, many, size int) []string {
	all := make([]string, many)
	for i := range all {
		all[i] = fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", size))
	}
	return all
}

// quotaAttacks are attacks by a client of the quota service. Each runs until its context ends.
var quotaAttacks = map[string]func(ctx context.Context, t *testing.T, addr string){
	"reports without pause": flood(false, nil, func(int) *rlqs.RateLimitQuotaUsageReports { return reportOf(1, 1, time.Second, "a") }),
	"new ids in each report": flood(false, nil, func(n int) *rlqs.RateLimitQuotaUsageReports {
		return reportOf(1, 1, 0, ids(n, 1000, 10)...)
	}),
	"ids of 50 kB": flood(false, nil, func(n int) *rlqs.RateLimitQuotaUsageReports {
		return reportOf(1, 1, time.Second, ids(n, 60, 50_000)...)
	}),
	"ids of 50 kB, compressed": flood(false, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, func(n int) *rlqs.RateLimitQuotaUsageReports {
		return reportOf(1, 1, time.Second, ids(n, 60, 50_000)...)
	}),
	"never reads": flood(true, nil, func(n int) *rlqs.RateLimitQuotaUsageReports {
		return reportOf(uint64(n), 1, time.Second, ids(n%50, 1000, 10)...)
	}),
	"absurd numbers": flood(false, nil, func(n int) *rlqs.RateLimitQuotaUsageReports {
		elapsed := []time.Duration{math.MinInt64, -time.Second, 0, 1, math.MaxInt64}[n%5]
		m := reportOf(math.MaxUint64, math.MaxUint64, elapsed, "a", "honest", "")
		m.BucketQuotaUsages[0].TimeElapsed = &durationpb.Duration{Seconds: math.MinInt64, Nanos: math.MinInt32}
		return m
	}),
	"a new domain in each stream": func(ctx context.Context, t *testing.T, addr string) {
		t.Helper()
		conn := Dial(t, addr)
		defer conn.Close()
		for n := 0; ctx.Err() == nil; n++ {
			streamCtx, end := context.WithCancel(ctx)
			if stream := quotaStream(streamCtx, t, conn); stream != nil {
				m := reportOf(1, 0, 0, "a")
				m.Domain = fmt.Sprint("no domain ", n)
				_ = stream.Send(m) // the stream may have ended
			}
			end()
		}
	},
	"streams that end immediately": func(ctx context.Context, t *testing.T, addr string) {
		t.Helper()
		conn := Dial(t, addr)
		defer conn.Close()
		for n := 0; ctx.Err() == nil; n++ {
			streamCtx, end := context.WithCancel(ctx)
			if stream := quotaStream(streamCtx, t, conn); stream != nil && stream.Send(reportOf(1, 1, 0, "a", "honest", strconv.Itoa(n))) == nil && n%2 == 0 {
				_, _ = stream.Recv() // the stream may have ended
			}
			end()
		}
	},
	"streams": func(ctx context.Context, t *testing.T, addr string) {
		t.Helper()
		var full atomic.Bool
		var all sync.WaitGroup
		for range 11 { // 1000 streams each; a connection may have 1024
			conn := Dial(t, addr)
			defer conn.Close()
			all.Go(func() {
				for range 1000 {
					stream := quotaStream(ctx, t, conn)
					if stream == nil || stream.Send(reportOf(1, 0, 0, "a")) != nil {
						full.Store(full.Load() || ctx.Err() == nil)
					}
				}
			})
		}
		all.Wait()
		<-ctx.Done()
	},
}

// TestQuotaAttacks attacks the quota service while other clients call the rate limit service on the
// same port and an honest Envoy reports. All of them are answered.
func TestQuotaAttacks(t *testing.T) {
	Parallel(t)
	for name, attack := range quotaAttacks {
		t.Run(name, func(t *testing.T) {
			Parallel(t)
			h := runUnderAttack(t, Options{}, func(s *sluice.Sluice) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				conn := Dial(t, s.Addr("grpc"))
				defer conn.Close()
				honest := quotaStream(ctx, t, conn)
				answers, enough := make(chan error, 1), Pick(3, 20)
				report := func(elapsed time.Duration) {
					if err := honest.Send(reportOf(500, 1, elapsed, "honest")); err != nil {
						t.Errorf("the honest Envoy's stream ended: %v", err)
					}
				}
				report(0)
				receive := func() {
					m, err := honest.Recv()
					if err == nil && len(m.GetBucketAction()) == 0 {
						err = fmt.Errorf("received %v", m)
					}
					answers <- err
				}
				go receive()
				must.OK(t, <-answers)
				attackCtx, end := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					attack(attackCtx, t, s.Addr("grpc"))
				}()
				for range enough {
					go receive()
					report(time.Second)
					select {
					case err := <-answers:
						if err != nil {
							t.Errorf("the honest Envoy got %v", err)
						}
					case <-time.After(suite.Patience):
						t.Fatal("the honest Envoy got no assignment")
					}
					time.Sleep(attackDuration() / time.Duration(enough))
				}
				end()
				<-done
			}, func(s *sluice.Sluice) {
				m := suite.Metrics(t, s)
				t.Logf("%.0f usages in %.0f reports; %.0f ignored, %.0f streams rejected", m.Sum("sluice_quota_usages_total"), m.Sum("sluice_quota_reports_total"),
					m.Sum("sluice_quota_ignored_usages_total"), m.Sum("sluice_quota_rejected_streams_total"))
			})
			t.Log(h)
			h.checkMemory(t, 128<<20)
		})
	}
}
