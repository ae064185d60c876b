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

// siegeRules divide a limit of each user, and count calls by another.
const siegeRules = `
domain: d
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1000, algorithm: token_bucket, quota: {} } }
  - { key: call, rate_limit: { unit: hour, requests_per_unit: 1000000 } }
`

// siege is a sluice that hostile clients attack from 127.0.0.1, and an honest client at 127.0.0.2, which has its stream of the
// quota service and its calls on one connection.
type siege struct {
	sluice *sluice.Sluice
	rules  string // their path
	conn   *grpc.ClientConn
	quotas rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient
	share  atomic.Uint32 // what the honest client was assigned last, in requests a second
}

func besiege(tb testing.TB, env ...string) *siege {
	tb.Helper()
	s := &siege{rules: suite.WriteRules(tb, siegeRules)}
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
	s.report(tb)
	suite.Eventually(tb, "the honest client has the whole limit", func() bool { return s.share.Load() == 1000 })
	return s
}

// report reports requests of the honest client.
func (s *siege) report(tb testing.TB) {
	tb.Helper()
	if err := s.quotas.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId:    &rlqs.BucketId{Bucket: map[string]string{"sluice": "user", "user": "honest"}},
		TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: 500,
	}}}); err != nil {
		tb.Fatal(err)
	}
}

// call has the honest client call the rate limit service.
func (s *siege) call(ctx context.Context) error {
	_, err := rls.NewRateLimitServiceClient(s.conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "call", Value: "x"}}}},
	})
	return err
}

// lower lowers the limit, and waits until the honest client has the new one.
func (s *siege) lower(tb testing.TB) {
	tb.Helper()
	suite.Replace(tb, s.rules, strings.Replace(siegeRules, "1000,", "500,", 1))
	suite.Eventually(tb, "the honest client has the new limit", func() bool { return s.share.Load() == 500 })
}

// state gets what operators look at.
func (s *siege) state(tb testing.TB) {
	tb.Helper()
	if !bytes.Contains(suite.Get(tb, "http://"+s.sluice.Addr("debug")+"/api/v1/state"), []byte(`"quota"`)) {
		tb.Error("the state has no quota")
	}
}

// stop ends sluice in order.
func (s *siege) stop(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), suite.Patience)
	defer cancel()
	if code, err := s.sluice.Stop(ctx); code != 0 || err != nil {
		tb.Errorf("sluice ends with %d, %v", code, err)
	}
}

// resident returns the most memory of the process that was resident, in MiB.
func (s *siege) resident(tb testing.TB) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.sluice.PID()))
	must.OK(tb, err)
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(most)[0])
	must.OK(tb, err)
	return kilobytes >> 10
}

// TestHostileStreams has 20 clients report 10,000 ids each, and then neither read nor report. For longer than an assignment
// lasts, each call of an honest client is answered, on the connection that has its stream; then rules change, metrics and the
// state are there, and sluice ends.
func TestHostileStreams(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	attack(t, s.sluice.Addr("grpc"), 0, 20, 1, 10_000)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := range 30 {
		<-tick.C
		if n%10 == 0 {
			s.report(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		if err := s.call(ctx); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		cancel()
	}
	if got := s.share.Load(); got != 1000 {
		t.Errorf("the honest client has %d requests a second", got)
	}
	s.lower(t)
	if n := suite.Metrics(t, s.sluice).Sum("sluice_quota_streams"); n < 1 {
		t.Errorf("there are %g streams", n)
	}
	s.state(t)
	s.stop(t)
}

// TestMillionIDsFitTheMemory has a client report a million ids. Sluice stays within the memory that the manifests give
// it, and an honest client keeps its share.
func TestMillionIDsFitTheMemory(t *testing.T) {
	t.Parallel()
	s := besiege(t, "GOMEMLIMIT=108MiB")
	attack(t, s.sluice.Addr("grpc"), 1<<30, 2, 50, 10_000)
	if most := s.resident(t); most > 192 {
		t.Errorf("%d MiB were resident", most)
	} else {
		t.Logf("%d MiB were resident", most)
	}
	m := suite.Metrics(t, s.sluice)
	t.Logf("%.0f streams, %.0f shares, %.0f usages without one", m.Sum("sluice_quota_streams"), m.Sum("sluice_quota_shares"), m.Sum("sluice_quota_ignored_usages_total"))
	s.report(t)
	s.lower(t)
}
