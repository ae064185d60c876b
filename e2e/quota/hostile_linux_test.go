package quota_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// hostileRules divide a limit for each user, and have another limit for calls of the rate limit
// service.
const hostileRules = `
domain: d
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1000, algorithm: token_bucket, quota: {} } }
  - { key: call, rate_limit: { unit: hour, requests_per_unit: 1000000 } }
`

// hostileTest is a sluice that hostile clients attack from 127.0.0.1, and an honest client at
// 127.0.0.2, which uses one connection for its stream to the quota service and its calls of the
// rate limit service.
type hostileTest struct {
	sluice *sluice.Sluice
	rules  string // path of the rules file
	conn   *grpc.ClientConn
	quotas rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient
	share  atomic.Uint32 // last assignment of the honest client, in requests per second
}

func startHostileTest(tb testing.TB, env ...string) *hostileTest {
	tb.Helper()
	s := &hostileTest{rules: suite.WriteRules(tb, hostileRules)}
	s.sluice = suite.StartSluice(tb, sluice.Options{Binary: sluiceBinary, Args: []string{"--config", s.rules}, Env: env})
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	var err error
	if s.conn, err = grpc.NewClient("passthrough:///"+s.sluice.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial)); err != nil {
		tb.Fatal(err)
	}
	if s.quotas, err = rlqs.NewRateLimitQuotaServiceClient(s.conn).StreamRateLimitQuotas(context.WithoutCancel(tb.Context())); err != nil {
		tb.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := s.quotas.Recv(); err == nil; m, err = s.quotas.Recv() {
			for _, a := range m.GetBucketAction() {
				s.share.Store(a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetTokensPerFill().GetValue() / 3600)
			}
		}
	})
	tb.Cleanup(func() {
		_ = s.conn.Close()
		reading.Wait()
	})
	s.reportHonest(tb)
	suite.Eventually(tb, "the honest client has the complete limit", func() bool { return s.share.Load() == 1000 })
	return s
}

// reportHonest sends a report of the honest client.
func (s *hostileTest) reportHonest(tb testing.TB) {
	tb.Helper()
	if err := s.quotas.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId:    &rlqs.BucketId{Bucket: map[string]string{"sluice": "user", "user": "honest"}},
		TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: 500,
	}}}); err != nil {
		tb.Fatal(err)
	}
}

// callHonest calls the rate limit service as the honest client.
func (s *hostileTest) callHonest(ctx context.Context) error {
	_, err := rls.NewRateLimitServiceClient(s.conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "call", Value: "x"}}}},
	})
	return err
}

// lowerLimit lowers the limit and waits until the honest client is assigned the new limit.
func (s *hostileTest) lowerLimit(tb testing.TB) {
	tb.Helper()
	suite.Replace(tb, s.rules, strings.Replace(hostileRules, "1000,", "500,", 1))
	suite.Eventually(tb, "the honest client has the new limit", func() bool { return s.share.Load() == 500 })
}

// checkState reads the state from the debug listener.
func (s *hostileTest) checkState(tb testing.TB) {
	tb.Helper()
	if !bytes.Contains(suite.Get(tb, "http://"+s.sluice.Addr("debug")+"/api/v1/state"), []byte(`"quota"`)) {
		tb.Error("the state has no quota")
	}
}

// stop shuts sluice down gracefully.
func (s *hostileTest) stop(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), suite.Patience)
	defer cancel()
	if code, err := s.sluice.Stop(ctx); code != 0 || err != nil {
		tb.Errorf("sluice exited with %d, %v, want 0", code, err)
	}
}

// peakMiB returns the peak resident memory of the sluice process in MiB.
func (s *hostileTest) peakMiB(tb testing.TB) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.sluice.PID()))
	must.OK(tb, err)
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(most)[0])
	must.OK(tb, err)
	return kilobytes >> 10
}

// TestHostileStreams has 20 clients report 10,000 bucket IDs each, and then neither read nor
// report. For longer than the time to live of an assignment, each call of an honest client on the
// connection of its stream gets a response. After that a rule change takes effect, metrics and the
// state can be read, and sluice shuts down.
func TestHostileStreams(t *testing.T) {
	t.Parallel()
	s := startHostileTest(t)
	attack(t, s.sluice.Addr("grpc"), 0, 20, 1, 10_000)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := range 30 {
		<-tick.C
		if n%10 == 0 {
			s.reportHonest(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		if err := s.callHonest(ctx); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		cancel()
	}
	if got := s.share.Load(); got != 1000 {
		t.Errorf("the honest client is assigned %d requests a second, want 1000", got)
	}
	s.lowerLimit(t)
	if n := suite.Metrics(t, s.sluice).Sum("sluice_quota_streams"); n < 1 {
		t.Errorf("%g streams are open, want at least 1", n)
	}
	s.checkState(t)
	s.stop(t)
}

// TestMillionIDsFitMemory has a client report a million bucket IDs. Sluice stays within the memory
// limit of the manifests, and an honest client keeps its share.
func TestMillionIDsFitMemory(t *testing.T) {
	t.Parallel()
	s := startHostileTest(t, "GOMEMLIMIT=108MiB")
	attack(t, s.sluice.Addr("grpc"), 1<<30, 2, 50, 10_000)
	if most := s.peakMiB(t); most > 192 {
		t.Errorf("%d MiB were resident, want at most 192", most)
	} else {
		t.Logf("%d MiB were resident", most)
	}
	m := suite.Metrics(t, s.sluice)
	t.Logf("%.0f streams, %.0f shares, %.0f ignored usages", m.Sum("sluice_quota_streams"), m.Sum("sluice_quota_shares"), m.Sum("sluice_quota_ignored_usages_total"))
	s.reportHonest(t)
	s.lowerLimit(t)
}
