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
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
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

// stage is a service, and what it counts.
type stage struct {
	*rlqs.Service
	t       *testing.T
	set     atomic.Pointer[descriptors.Set]
	metrics *telemetry.Metrics
	counted []string
	paused  atomic.Int64 // for how many nanoseconds its process has
	asked   atomic.Int64 // how often the service asked for the rules
}

// play runs a test with a service, at a time of its own, past the time in which a predecessor's assignments may act.
func play(t *testing.T, allow *access.AllowList, test func(s *stage)) {
	t.Helper()
	set, metrics := servertest.Compile(t, divided), servertest.Metrics(t)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := &stage{t: t, metrics: metrics}
		s.set.Store(set)
		s.Service = rlqs.New(rlqs.Options{
			Elapsed: func() time.Duration { return time.Since(begun) },
			Rules: func() *descriptors.Set {
				s.asked.Add(1)
				return s.set.Load()
			},
			Allow: allow, Metrics: metrics,
			Count: func(_ *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, beyond uint64) {
				text := fmt.Sprintf("%s %s %d %d", r.Path(), entries[0].Value, allowed, denied)
				if beyond > 0 {
					text += fmt.Sprintf(", %d beyond", beyond)
				}
				s.counted = append(s.counted, text)
			},
		})
		defer s.Close()
		time.Sleep(time.Minute)
		test(s)
	})
}

// envoy is one with a stream.
type envoy struct {
	*rlqs.Stream
	s     *stage
	wakes atomic.Int64
	told  map[string]string // what it is told of buckets
}

func (s *stage) envoy() *envoy {
	s.t.Helper()
	return s.open(rlqs.Peer{})
}

// open opens a stream of a client.
func (s *stage) open(p rlqs.Peer) *envoy {
	s.t.Helper()
	e, err := s.tryOpen(p)
	must.OK(s.t, err)
	return e
}

func (s *stage) tryOpen(p rlqs.Peer) (e *envoy, err error) {
	e = &envoy{s: s, told: map[string]string{}}
	e.Stream, err = s.Open(p, func() { e.wakes.Add(1) })
	return e, err
}

// usage is an element of a report. The id is pairs of keys and values.
func usage(allowed, denied uint64, id ...string) *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	b := map[string]string{}
	for i := 0; i < len(id); i += 2 {
		b[id[i]] = id[i+1]
	}
	return &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &rlqsv3.BucketId{Bucket: b}, TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

func user(allowed, denied uint64, name string) *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	return usage(allowed, denied, "sluice", "user", "user", name)
}

// reports sends a report, takes what there is to take and confirms it.
func (e *envoy) reports(usages ...*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	e.s.t.Helper()
	b := servertest.Marshal(e.s.t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: usages})
	must.OK(e.s.t, e.Feed(b, true))
	e.take()
}

func (e *envoy) take() {
	e.s.t.Helper()
	for more := true; more; {
		var b []byte
		var seq uint64
		b, seq, more = e.AppendMessage(nil)
		var m rlqsv3.RateLimitQuotaResponse
		must.OK(e.s.t, proto.Unmarshal(b, &m))
		for _, a := range m.GetBucketAction() {
			e.told[fmt.Sprint(a.GetBucketId().GetBucket())] = text(a)
		}
		if seq > 0 {
			e.Confirm(seq)
		}
	}
}

// text is an action for people.
func text(a *rlqsv3.RateLimitQuotaResponse_BucketAction) string {
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

// TestAssigns has an Envoy report buckets of all sorts of rules.
func TestAssigns(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
		e.reports(
			user(3, 0, "al"), usage(1, 2, "path", "/a", "sluice", "user,path", "user", "al"), usage(1, 0, "sluice", "free", "free", "x"),
			usage(1, 0, "sluice", "none", "none", "x"), usage(1, 0, "sluice", "tried", "tried", "x"))
		for id, want := range map[string]string{
			"map[sluice:user user:al]":              "10 tokens, 360000 in 1h0m0s for 12s",
			"map[path:/a sluice:user,path user:al]": "4 tokens, 36000 in 1h0m0s for 12s",
			"map[free:x sluice:free]":               "ALLOW_ALL for 12s",
			"map[none:x sluice:none]":               "DENY_ALL for 12s",
			"map[sluice:tried tried:x]":             "ALLOW_ALL for 12s",
		} {
			if got := e.told[id]; got != want {
				t.Errorf("of %s Envoy is told %q, want %q", id, got, want)
			}
		}
		want := []string{"user al 3 0", "user > path=/a al 1 2", "free x 1 0", "none x 1 0", "tried x 1 0"}
		if !slices.Equal(s.counted, want) {
			t.Errorf("counted are %q, want %q", s.counted, want)
		}
	})
}

// TestShadowCountsWhatIsBeyond has Envoys report more than a limit in shadow mode: all may pass, and what is beyond counts.
func TestShadowCountsWhatIsBeyond(t *testing.T) {
	play(t, nil, func(s *stage) {
		e, f := s.envoy(), s.envoy()
		e.reports(usage(3, 0, "sluice", "tried", "tried", "x"))
		f.reports(usage(3, 0, "sluice", "tried", "tried", "x"), usage(3, 0, "sluice", "tried", "tried", "y"), usage(99, 0, "sluice", "free", "free", "x"))
		if want := []string{"tried x 3 0", "tried x 3 0, 2 beyond", "tried y 3 0", "free x 99 0"}; !slices.Equal(s.counted, want) {
			t.Errorf("counted are %q, want %q", s.counted, want)
		}
	})
}

// TestCountsAreBounded has an Envoy report more requests than anybody has.
func TestCountsAreBounded(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.envoy().reports(user(math.MaxUint64, 1, "al"), user(3, math.MaxUint64, "al"), usage(math.MaxUint64, math.MaxUint64, "sluice", "tried", "tried", "x"))
		want := []string{"user al 4294967296 1", "user al 3 4294967296", "tried x 4294967296 4294967296, 4294967292 beyond"}
		if !slices.Equal(s.counted, want) {
			t.Errorf("counted are %q, want %q", s.counted, want)
		}
	})
}

// TestUnmatched has ids that lead to no rule with quota: those in use are left alone, and others forgotten.
func TestUnmatched(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
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
			if e.reports(usage(1, 0, id...)); len(e.told) > 0 {
				t.Errorf("of the bucket %q in use Envoy is told %q", id, e.told)
			}
			if e.reports(usage(0, 0, id...)); len(e.told) != 1 || e.told[fmt.Sprint(usage(0, 0, id...).GetBucketId().GetBucket())] != "abandon" {
				t.Errorf("of the idle bucket %q Envoy is told %q", id, e.told)
			}
			clear(e.told)
		}
		if len(s.counted) > 0 {
			t.Errorf("counted are %q", s.counted)
		}
	})
}

// TestOneByteDisturbsNobody has an end client send what is no text in a bucket's id.
func TestOneByteDisturbsNobody(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
		b := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			user(1, 0, "al"), user(0, 0, "b?b"), user(1, 0, "cy"), user(1, 0, strings.Repeat("x", 50_000)),
		}})
		for i := range b {
			if i > 0 && b[i-1] == 'b' && b[i] == '?' {
				b[i] = 0xff
			}
		}
		for len(b) > 0 { // in pieces
			n := min(len(b), 11)
			must.OK(t, e.Feed(b[:n], n == len(b)))
			b = b[n:]
		}
		e.take()
		if len(e.told) != 2 || e.told["map[sluice:user user:al]"] == "" || e.told["map[sluice:user user:cy]"] == "" {
			t.Errorf("Envoy is told %q, want al's and cy's share", e.told)
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
			t.Errorf("ignored are %v", gathered)
		}
	})
}

// TestSharesAddUp has Envoys come and go: what they are told never adds up to more than the limit, and it is all used in
// the end.
func TestSharesAddUp(t *testing.T) {
	play(t, nil, func(s *stage) {
		rate := func(e *envoy) (n int) {
			_, _ = fmt.Sscanf(e.told["map[sluice:user user:al]"], "%d tokens, %d in", new(int), &n)
			return n
		}
		a, b := s.envoy(), s.envoy()
		for range 10 {
			a.reports(user(500, 10, "al"))
			b.reports(user(500, 10, "al"))
			for range 3 {
				a.take()
				b.take()
			}
			if sum := rate(a) + rate(b); sum > 360_000 {
				t.Fatalf("two Envoys are told %d and %d", rate(a), rate(b))
			}
			time.Sleep(5 * time.Second)
		}
		if rate(a) < 170_000 || rate(b) < 170_000 {
			t.Errorf("two Envoys in the same need are told %d and %d", rate(a), rate(b))
		}
		b.Close()
		b.Close()
		if _, seq, more := b.AppendMessage(nil); seq != 0 || more {
			t.Error("a stream that has ended has something to say")
		}
		for range 4 {
			a.reports(user(500, 10, "al"))
			a.take()
			time.Sleep(5 * time.Second)
		}
		if rate(a) < 350_000 {
			t.Errorf("the Envoy that is left is told %d", rate(a))
		}
	})
}

// TestWakes has a stream that says nothing be told of what another's report changes.
func TestWakes(t *testing.T) {
	play(t, nil, func(s *stage) {
		a := s.envoy()
		a.reports(user(500, 10, "al"))
		b := s.envoy()
		was := a.wakes.Load()
		b.reports(user(500, 10, "al"))
		time.Sleep(time.Second)
		if a.wakes.Load() == was {
			t.Error("an Envoy is not told that another needs a part of its share")
		}
	})
}

func TestErrorsEndTheStream(t *testing.T) {
	allow, err := access.ParseAllowList([]string{"a=e"})
	must.OK(t, err)
	for name, tc := range map[string]struct {
		allow *access.AllowList
		piece string
		code  codes.Code
	}{
		"malformed":      {nil, "\x00", codes.InvalidArgument},
		"half":           {nil, "\x0a\x05d", codes.InvalidArgument},
		"no domain":      {nil, "\x0a\x00", codes.InvalidArgument},
		"another domain": {nil, "\x0a\x01d\x0a\x01e", codes.InvalidArgument},
		"not allowed":    {allow, "\x0a\x01d", codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, tc.allow, func(s *stage) {
				e := s.open(rlqs.Peer{Client: named(allow, "a")})
				for range 2 {
					if err := e.Feed([]byte(tc.piece), true); status.Code(err) != tc.code {
						t.Errorf("Report = %v, want %v", err, tc.code)
					}
				}
				e.Close()
			})
		})
	}
}

// named returns a client by the name in its certificate.
func named(allow *access.AllowList, name string) *access.Client {
	return allow.Client(&x509.Certificate{DNSNames: []string{name}})
}

// TestDomainsWithoutRules has a client open stream after stream, each for another domain that no rules are for: nothing of
// them is kept.
func TestDomainsWithoutRules(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	play(t, nil, func(s *stage) {
		before := heap()
		const streams = 100_000
		for n := range streams {
			e, err := s.Open(rlqs.Peer{Address: "10.0.0.1"}, func() {})
			must.OK(t, err)
			must.OK(t, e.Feed(fmt.Appendf(nil, "\x0a\x09no %06d", n), true))
			e.Close()
		}
		if kept := (int64(heap()) - int64(before)) / streams; kept > 20 {
			t.Errorf("of each stream %d bytes are kept", kept)
		}
		runtime.KeepAlive(s)
	})
}

// TestRulesChange has another number, and a rule that is gone, come into force with the next report.
func TestRulesChange(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
		e.reports(user(500, 10, "al"))
		s.set.Store(servertest.Compile(t, strings.Replace(divided, "100", "50", 1)))
		s.RulesChanged()
		e.take()
		if got := e.told["map[sluice:user user:al]"]; !strings.Contains(got, "180000 in") {
			t.Errorf("Envoy is told %q, want half of what it was", got)
		}
		s.set.Store(servertest.Compile(t, "domain: d"))
		s.RulesChanged()
		e.take()
		if got := e.told["map[sluice:user user:al]"]; got != "abandon" {
			t.Errorf("Envoy is told %q, want to abandon the bucket", got)
		}
	})
}

// TestMillionIDs has end clients of an Envoy choose a million ids: as many as a stream may have are divided, and the others
// cost nothing that lasts.
func TestMillionIDs(t *testing.T) {
	chunks := 1000
	if testing.Short() {
		chunks = 30
	}
	play(t, nil, func(s *stage) {
		e := s.envoy()
		e.reports(user(1, 0, "al"))
		for chunk := range chunks {
			m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
			for i := range 1000 {
				m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(1, 0, fmt.Sprint(chunk, "-", i)))
			}
			must.OK(t, e.Feed(servertest.Marshal(t, m), chunk == chunks-1))
			s.counted = nil
		}
		e.take()
		if shares, room := s.metric("sluice_quota_shares"), s.metric("sluice_quota_ignored_usages_total"); shares != 10_000 || room != float64(chunks*1000-9_999) {
			t.Errorf("%g buckets are divided and %g not, want 10,000 and the others", shares, room)
		}
		e.reports(user(1, 0, "al")) // who was there before
		if got := e.told["map[sluice:user user:al]"]; !strings.Contains(got, "tokens") {
			t.Errorf("of a bucket from before Envoy is told %q", got)
		}
	})
}

// metric returns the sum of a metric's series.
func (s *stage) metric(name string) (sum float64) {
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
