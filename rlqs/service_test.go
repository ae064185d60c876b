package rlqs_test

import (
	"crypto/x509"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const divided = `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: { burst: 0.1s } }
    descriptors:
      - { key: path, value: /a, rate_limit: { unit: second, requests_per_unit: 10, algorithm: token_bucket, quota: {} } }
  - { key: free, rate_limit: { unlimited: true, quota: {} } }
  - { key: none, rate_limit: { unit: hour, requests_per_unit: 0, algorithm: token_bucket, quota: {} } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 9, quota: { approximate: true } } }
  - { key: called, rate_limit: { unit: hour, requests_per_unit: 9 } }
`

// testService is a service with the calls of its callbacks.
type testService struct {
	*rlqs.Service
	t          *testing.T
	set        atomic.Pointer[descriptors.Set]
	metrics    *telemetry.Metrics
	counted    []string
	paused     atomic.Int64 // nanoseconds by which the clock is ahead, as after a suspension
	rulesReads atomic.Int64 // number of calls of Options.Rules
}

// runService runs a test with a service in a synctest bubble, after the assignments of a
// predecessor have expired.
func runService(t *testing.T, allow *access.AllowList, test func(s *testService)) {
	t.Helper()
	set, metrics := servertest.Compile(t, divided), servertest.Metrics(t)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := &testService{t: t, metrics: metrics}
		s.set.Store(set)
		s.Service = rlqs.New(quota.Options{
			Elapsed: func() time.Duration { return time.Since(begun) },
			Rules: func() *descriptors.Set {
				s.rulesReads.Add(1)
				return s.set.Load()
			},
			Allow: allow, Metrics: metrics,
			Count: func(_ *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, shadowDenied uint64) {
				text := fmt.Sprintf("%s %s %d %d", r.Path(), entries[0].Value, allowed, denied)
				if shadowDenied > 0 {
					text += fmt.Sprintf(", %d shadow denied", shadowDenied)
				}
				s.counted = append(s.counted, text)
			},
		})
		defer s.Close()
		time.Sleep(time.Minute)
		test(s)
	})
}

// envoy is an Envoy with a stream.
type envoy struct {
	quota.Stream
	s        *testService
	wakes    atomic.Int64
	received map[string]string // last action of each bucket, by its ID
}

// openEnvoy opens a stream of an unknown client.
func (s *testService) openEnvoy() *envoy {
	s.t.Helper()
	return s.open(quota.Peer{})
}

// open opens a stream of a client.
func (s *testService) open(p quota.Peer) *envoy {
	s.t.Helper()
	e, err := s.tryOpen(p)
	must.OK(s.t, err)
	return e
}

func (s *testService) tryOpen(p quota.Peer) (e *envoy, err error) {
	e = &envoy{s: s, received: map[string]string{}}
	e.Stream, err = s.Open(p, func() { e.wakes.Add(1) })
	return e, err
}

// usage returns an element of a report. id lists keys and values alternately.
func usage(allowed, denied uint64, id ...string) *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	b := map[string]string{}
	for i := 0; i < len(id); i += 2 {
		b[id[i]] = id[i+1]
	}
	return &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &rlqsv3.BucketId{Bucket: b}, TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

// user returns the usage of the bucket of a user.
func user(allowed, denied uint64, name string) *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	return usage(allowed, denied, "sluice", "user", "user", name)
}

// report sends a report, and receives and confirms all messages.
func (e *envoy) report(usages ...*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	e.s.t.Helper()
	b := servertest.Marshal(e.s.t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: usages})
	must.OK(e.s.t, e.Feed(b, true))
	e.receive()
}

// receive receives and confirms all messages.
func (e *envoy) receive() {
	e.s.t.Helper()
	for more := true; more; {
		var b []byte
		var seq uint64
		b, seq, more = e.AppendMessage(nil)
		var m rlqsv3.RateLimitQuotaResponse
		must.OK(e.s.t, proto.Unmarshal(b, &m))
		for _, a := range m.GetBucketAction() {
			e.received[fmt.Sprint(a.GetBucketId().GetBucket())] = describeAction(a)
		}
		if seq > 0 {
			e.Confirm(seq)
		}
	}
}

// describeAction formats an action.
func describeAction(a *rlqsv3.RateLimitQuotaResponse_BucketAction) string {
	assigned := a.GetQuotaAssignmentAction()
	if assigned == nil {
		return "abandon"
	}
	strategy := assigned.GetRateLimitStrategy()
	ttl := fmt.Sprintf(" for %v", assigned.GetAssignmentTimeToLive().AsDuration())
	if b := strategy.GetTokenBucket(); b != nil {
		return fmt.Sprintf("%d tokens, %d in %v", b.GetMaxTokens(), b.GetTokensPerFill().GetValue(), b.GetFillInterval().AsDuration()) + ttl
	}
	return strategy.GetBlanketRule().String() + ttl
}

// TestAssignments has an Envoy report buckets of rules of all kinds.
func TestAssignments(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		e.report(
			user(3, 0, "al"), usage(1, 2, "path", "/a", "sluice", "user,path", "user", "al"), usage(1, 0, "sluice", "free", "free", "x"),
			usage(1, 0, "sluice", "none", "none", "x"), usage(1, 0, "sluice", "tried", "tried", "x"))
		for id, want := range map[string]string{
			"map[sluice:user user:al]":              "10 tokens, 360000 in 1h0m0s for 12s",
			"map[path:/a sluice:user,path user:al]": "4 tokens, 36000 in 1h0m0s for 12s",
			"map[free:x sluice:free]":               "ALLOW_ALL for 12s",
			"map[none:x sluice:none]":               "DENY_ALL for 12s",
			"map[sluice:tried tried:x]":             "ALLOW_ALL for 12s",
		} {
			if got := e.received[id]; got != want {
				t.Errorf("for %s Envoy receives %q, want %q", id, got, want)
			}
		}
		want := []string{"user al 3 0", "user > path=/a al 1 2", "free x 1 0", "none x 1 0", "tried x 1 0"}
		if !slices.Equal(s.counted, want) {
			t.Errorf("Count is called with %q, want %q", s.counted, want)
		}
	})
}

// TestShadowHitsOverLimit has Envoys report more hits than a limit in shadow mode allows. All are
// allowed, and those over the limit are counted.
func TestShadowHitsOverLimit(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e, f := s.openEnvoy(), s.openEnvoy()
		e.report(usage(3, 0, "sluice", "tried", "tried", "x"))
		f.report(usage(3, 0, "sluice", "tried", "tried", "x"), usage(3, 0, "sluice", "tried", "tried", "y"), usage(99, 0, "sluice", "free", "free", "x"))
		if want := []string{"tried x 3 0", "tried x 3 0, 2 shadow denied", "tried y 3 0", "free x 99 0"}; !slices.Equal(s.counted, want) {
			t.Errorf("Count is called with %q, want %q", s.counted, want)
		}
	})
}

// TestCountsAreBounded has an Envoy report impossible numbers of requests.
func TestCountsAreBounded(t *testing.T) {
	runService(t, nil, func(s *testService) {
		s.openEnvoy().report(user(math.MaxUint64, 1, "al"), user(3, math.MaxUint64, "al"), usage(math.MaxUint64, math.MaxUint64, "sluice", "tried", "tried", "x"))
		want := []string{"user al 4294967296 1", "user al 3 4294967296", "tried x 4294967296 4294967296, 4294967292 shadow denied"}
		if !slices.Equal(s.counted, want) {
			t.Errorf("Count is called with %q, want %q", s.counted, want)
		}
	})
}

// TestUnmatched reports bucket IDs that match no rule with quota. Buckets with requests are
// ignored, and idle ones are abandoned.
func TestUnmatched(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		for _, id := range [][]string{
			{},
			{"user", "al"},
			{"sluice", "", "user", "al"},
			{"sluice", "user"},
			{"sluice", "sluice"},
			{"sluice", "user,", "user", "al"},
			{"sluice", ",user", "user", "al"},
			{"sluice", "user,user", "user", "al"},
			{"sluice", "user", "user", "al", "path", "/a"},
			{"sluice", "path,user", "user", "al", "path", "/a"},
			{"sluice", "user,path", "user", "al"},
			{"sluice", "user,user", "user", "al", "path", "/a"},
			{"sluice", "called", "called", "x"},
			{"sluice", "user,sluice", "user", "al"},
			{"sluice", "unknown", "unknown", "x"},
		} {
			if e.report(usage(1, 0, id...)); len(e.received) > 0 {
				t.Errorf("for the bucket %q with requests Envoy receives %q", id, e.received)
			}
			if e.report(usage(0, 0, id...)); len(e.received) != 1 || e.received[fmt.Sprint(usage(0, 0, id...).GetBucketId().GetBucket())] != "abandon" {
				t.Errorf("for the idle bucket %q Envoy receives %q", id, e.received)
			}
			clear(e.received)
		}
		if len(s.counted) > 0 {
			t.Errorf("Count is called with %q", s.counted)
		}
	})
}

// TestInvalidUTF8AffectsOneBucket reports a bucket ID that is not valid UTF-8, which a downstream
// client can cause.
func TestInvalidUTF8AffectsOneBucket(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		b := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			user(1, 0, "al"), user(0, 0, "b?b"), user(1, 0, "cy"), user(1, 0, strings.Repeat("x", 50_000)),
		}})
		for i := range b {
			if i > 0 && b[i-1] == 'b' && b[i] == '?' {
				b[i] = 0xff
			}
		}
		for len(b) > 0 {
			n := min(len(b), 11)
			must.OK(t, e.Feed(b[:n], n == len(b)))
			b = b[n:]
		}
		e.receive()
		if len(e.received) != 2 || e.received["map[sluice:user user:al]"] == "" || e.received["map[sluice:user user:cy]"] == "" {
			t.Errorf("Envoy receives %q, want assignments for al and cy", e.received)
		}
		gathered := map[string]float64{}
		all, err := s.metrics.Registry.Gather()
		must.OK(t, err)
		for _, m := range all {
			if m.GetName() == "sluice_quota_ignored_usages_total" {
				for _, series := range m.GetMetric() {
					gathered[series.GetLabel()[0].GetValue()] = series.GetCounter().GetValue()
				}
			}
		}
		if gathered["invalid_utf8"] != 1 || gathered["too_large"] != 1 || gathered["too_many_buckets"] != 0 {
			t.Errorf("ignored usages by reason: %v", gathered)
		}
	})
}

// TestSharesNeverExceedLimit has Envoys connect and disconnect. The assigned rates never add up to
// more than the limit, and in the end the complete limit is assigned.
func TestSharesNeverExceedLimit(t *testing.T) {
	runService(t, nil, func(s *testService) {
		rate := func(e *envoy) (n int) {
			_, _ = fmt.Sscanf(e.received["map[sluice:user user:al]"], "%d tokens, %d in", new(int), &n)
			return n
		}
		a, b := s.openEnvoy(), s.openEnvoy()
		for range 10 {
			a.report(user(500, 10, "al"))
			b.report(user(500, 10, "al"))
			for range 3 {
				a.receive()
				b.receive()
			}
			if sum := rate(a) + rate(b); sum > 360_000 {
				t.Fatalf("two Envoys are assigned %d and %d", rate(a), rate(b))
			}
			time.Sleep(5 * time.Second)
		}
		if rate(a) < 170_000 || rate(b) < 170_000 {
			t.Errorf("two Envoys with the same demand are assigned %d and %d", rate(a), rate(b))
		}
		b.Close()
		b.Close()
		if _, seq, more := b.AppendMessage(nil); seq != 0 || more {
			t.Error("a closed stream has a message")
		}
		for range 4 {
			a.report(user(500, 10, "al"))
			a.receive()
			time.Sleep(5 * time.Second)
		}
		if rate(a) < 350_000 {
			t.Errorf("the remaining Envoy is assigned %d", rate(a))
		}
	})
}

// TestReportWakesOtherStreams checks that a stream is woken if the report of another stream changes
// its assignment.
func TestReportWakesOtherStreams(t *testing.T) {
	runService(t, nil, func(s *testService) {
		a := s.openEnvoy()
		a.report(user(500, 10, "al"))
		b := s.openEnvoy()
		before := a.wakes.Load()
		b.report(user(500, 10, "al"))
		time.Sleep(time.Second)
		if a.wakes.Load() == before {
			t.Error("a stream whose share was lowered is not woken")
		}
	})
}

func TestErrorsEndStream(t *testing.T) {
	allow, err := access.ParseAllowList([]string{"a=e"})
	must.OK(t, err)
	for name, tc := range map[string]struct {
		allow *access.AllowList
		piece string
		code  codes.Code
	}{
		"malformed":      {nil, "\x00", codes.InvalidArgument},
		"truncated":      {nil, "\x0a\x05d", codes.InvalidArgument},
		"no domain":      {nil, "\x0a\x00", codes.InvalidArgument},
		"another domain": {nil, "\x0a\x01d\x0a\x01e", codes.InvalidArgument},
		"not allowed":    {allow, "\x0a\x01d", codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			runService(t, tc.allow, func(s *testService) {
				e := s.open(quota.Peer{Client: named(allow, "a")})
				for range 2 {
					if err := e.Feed([]byte(tc.piece), true); status.Code(err) != tc.code {
						t.Errorf("Feed = %v, want %v", err, tc.code)
					}
				}
				e.Close()
			})
		})
	}
}

// named returns the client with the given name in its certificate.
func named(allow *access.AllowList, name string) *access.Client {
	return allow.Client(&x509.Certificate{DNSNames: []string{name}})
}

// TestDomainsWithoutRules has a client open many streams, each for another domain without rules.
// They leave no memory behind.
func TestDomainsWithoutRules(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runService(t, nil, func(s *testService) {
		before := heap()
		const streams = 100_000
		for n := range streams {
			e, err := s.Open(quota.Peer{Address: "10.0.0.1"}, func() {})
			must.OK(t, err)
			must.OK(t, e.Feed(fmt.Appendf(nil, "\x0a\x09no %06d", n), true))
			e.Close()
		}
		if kept := (int64(heap()) - int64(before)) / streams; kept > 20 {
			t.Errorf("each stream leaves %d bytes", kept)
		}
		runtime.KeepAlive(s)
	})
}

// TestRulesChange lowers a limit and then removes its rule. RulesChanged applies both without a
// further report.
func TestRulesChange(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		e.report(user(500, 10, "al"))
		s.set.Store(servertest.Compile(t, strings.Replace(divided, "100", "50", 1)))
		s.RulesChanged()
		e.receive()
		if got := e.received["map[sluice:user user:al]"]; !strings.Contains(got, "180000 in") {
			t.Errorf("Envoy receives %q, want half of the previous rate", got)
		}
		s.set.Store(servertest.Compile(t, "domain: d"))
		s.RulesChanged()
		e.receive()
		if got := e.received["map[sluice:user user:al]"]; got != "abandon" {
			t.Errorf("Envoy receives %q, want to abandon the bucket", got)
		}
	})
}

// TestMillionIDs has an Envoy report a million bucket IDs. As many buckets as a stream may have are
// divided, and the others leave no state behind.
func TestMillionIDs(t *testing.T) {
	chunks := min(effort.Times(t, 100), 1000)
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		e.report(user(1, 0, "al"))
		for chunk := range chunks {
			m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
			for i := range 1000 {
				m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(1, 0, fmt.Sprint(chunk, "-", i)))
			}
			must.OK(t, e.Feed(servertest.Marshal(t, m), chunk == chunks-1))
			s.counted = nil
		}
		e.receive()
		if shares, ignored := s.metric("sluice_quota_shares"), s.metric("sluice_quota_ignored_usages_total"); shares != 10_000 || ignored != float64(chunks*1000-9_999) {
			t.Errorf("%g buckets are divided and %g ignored, want 10,000 and all others", shares, ignored)
		}
		e.report(user(1, 0, "al")) // whose bucket existed before
		if got := e.received["map[sluice:user user:al]"]; !strings.Contains(got, "tokens") {
			t.Errorf("for the existing bucket Envoy receives %q", got)
		}
	})
}

// metric returns the sum of a metric's series.
func (s *testService) metric(name string) (sum float64) {
	s.t.Helper()
	families, err := s.metrics.Registry.Gather()
	must.OK(s.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
