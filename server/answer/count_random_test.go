package answer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestSplitOfAnyDecision classifies hits by decisions with random numbers. No class may exceed the
// hits.
func TestSplitOfAnyDecision(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	number := func() uint64 { // often near 0, the maximum and the limit
		switch r.IntN(4) {
		case 0:
			return r.Uint64N(30)
		case 1:
			return math.MaxUint64 - r.Uint64N(30)
		default:
			return r.Uint64() >> r.IntN(64)
		}
	}
	for range 200_000 {
		s := &Service{settings: Settings{NearLimitRatio: float32(r.IntN(11)) / 10}}
		p := &limiter.Policy{
			Algorithm: limiter.Algorithm(1 + r.IntN(limiter.Algorithms-1)), Limit: uint32(r.Uint64() >> (32 + r.IntN(32))), Window: time.Minute,
			Burst: 1 + r.Uint32N(100), SubWindows: 10, CountRefused: r.IntN(2) == 0,
		}
		charge := &limiter.Charge{Policy: p, Hits: number(), Mode: limiter.Mode(r.IntN(4)), Reserve: r.IntN(4) == 0}
		d := &limiter.Decision{
			Over: r.IntN(2) == 0, Denied: r.IntN(2) == 0, Before: number(), Charged: number(), Penalty: uint8(r.IntN(2)), PenaltyStarted: r.IntN(2) == 0,
		}
		h := s.classifyHits(charge, d)
		if h.Total != charge.Hits || h.Over > h.Total || h.Near > h.Total || h.Within+h.Uncharged > h.Total-h.Over || h.Shadow > h.Over || h.Negative > 0 {
			t.Fatalf("seed %d: %d hits on %+v that are decided %+v are counted as %+v", seed, charge.Hits, p, d, h)
		}
	}
}

// fallback decides in memory, or decides all requests the same way without counters, as the
// fallbacks of a store do.
type fallback struct {
	tableDecider
	blind, admits bool
}

func (f *fallback) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error) {
	if !f.blind {
		return f.tableDecider.Decide(now, b, names, w)
	}
	b.Stored().ResetDecisions()
	b.Denied, b.Wait = false, 0
	for i := range b.Charges {
		c, d := &b.Charges[i], &b.Decisions[i]
		if *d = (limiter.Decision{Remaining: c.Policy.Capacity(), Reset: time.Second}); !f.admits && !c.Refund && c.Hits > 0 {
			*d = limiter.Decision{Over: true, Denied: c.Mode.Denies(), Reset: time.Second, RetryAfter: time.Second}
			b.Denied = b.Denied || d.Denied
		}
	}
	return true, nil
}

// fallbackService returns a service with a fallback and without rules.
func fallbackService(tb testing.TB) (*Service, *fallback) {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	f := &fallback{tableDecider: tableDecider{table}}
	return service(tb, Settings{NearLimitRatio: 0.8, Decider: f, Namer: descriptors.NewNamer("", nil)}, ""), f
}

// TestHitsDeniedByFallback checks that each hit is counted once, however much of the limit remains.
func TestHitsDeniedByFallback(t *testing.T) {
	s, f := fallbackService(t)
	if err := s.SetRules(noon, compile(t, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 5}}]}")); err != nil {
		t.Fatal(err)
	}
	f.blind = true
	for range 3 {
		if _, _, err := s.Answer(noon, time.Minute, &Exchange{}, marshal(t, oneDescriptor(0, "k", "v"))); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := counted(t, s.metrics.Registry), (telemetry.Hits{Total: 3, Over: 3}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestCountsGrow makes random requests under changing rules, with a store that becomes unavailable
// and recovers. Each metric grows, by at most the offered hits.
func TestCountsGrow(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	rules := func() string {
		text := "{domain: d, descriptors: ["
		for i, fields := range []string{
			"count_refused: true", "algorithm: sliding_window, count_refused: true", "algorithm: sliding_log", "algorithm: token_bucket, count_refused: true",
			"algorithm: leaky_bucket", "algorithm: concurrency, name: calls", "penalty: [1s, 1m]",
			fmt.Sprintf("name: tokens, count_refused: true, reserve: {amount: %d}", 1+r.IntN(9)), "unlimited: true",
		} {
			if fields != "unlimited: true" {
				fields += fmt.Sprintf(", unit: minute, requests_per_unit: %d", 9+r.IntN(9))
			}
			text += fmt.Sprintf("{key: k%d, shadow_mode: %v, quota_mode: %v, rate_limit: {%s}}, ", i, r.IntN(6) == 0, i < 6 && r.IntN(6) == 0, fields)
		}
		return text + "]}"
	}
	for range 2 {
		s, f := fallbackService(t)
		now := noon
		var was telemetry.Hits
		var leases []uint64
		for n := range 250 {
			if n%40 == 0 {
				if err := s.SetRules(now, compile(t, rules())); err != nil {
					t.Fatal(err)
				}
			}
			now += limiter.Time(r.Int64N(int64(10 * time.Second)))
			f.blind, f.admits = r.IntN(4) == 0, r.IntN(4) == 0
			request := &rls.RateLimitRequest{Domain: "d"}
			offered := uint64(0)
			for range 1 + r.IntN(3) {
				d := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(fmt.Sprintf("k%d", r.IntN(9)), "v")}}
				hits := r.Uint64N(6)
				if r.IntN(8) == 0 {
					d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5 + r.Uint32N(20), Unit: typev3.RateLimitUnit_MINUTE}
				}
				if d.IsNegativeHits = r.IntN(6) == 0; len(leases) > 0 && r.IntN(4) == 0 {
					hits, leases = leases[0], leases[1:]
				}
				d.HitsAddend = wrapperspb.UInt64(hits)
				offered += max(hits, 20) // a denied request counts the hits that it would have reserved
				request.Descriptors = append(request.Descriptors, d)
			}
			x := &Exchange{}
			if _, _, err := s.Answer(now, time.Minute, x, marshal(t, request)); err != nil {
				t.Fatal(err)
			}
			for _, at := range x.plan.AllLeases() {
				leases = append(leases, x.plan.Batch.Lease(at))
			}
			is := counted(t, s.metrics.Registry)
			if !grewBy(was.Total, is.Total, offered) || !grewBy(was.Over, is.Over, offered) || !grewBy(was.Near, is.Near, offered) ||
				!grewBy(was.Within, is.Within, offered) || !grewBy(was.Shadow, is.Shadow, offered) || !grewBy(was.Negative, is.Negative, offered) || is.Over+is.Within > is.Total {
				t.Fatalf("seed %d, request %d: %d hits made %+v of %+v:\n%v", seed, n, offered, is, was, request)
			}
			was = is
		}
	}
}

func grewBy(was, is, most uint64) bool { return was <= is && is <= was+most }

// exceeded returns the hits of a service that were admitted beyond a limit.
func exceeded(s *Service) (hits uint64) {
	s.metrics.Rules.EachRuntime(func(_ int, c *telemetry.RuleCounters) { hits += c.ExceededHits() })
	r := s.rules.Load()
	for i := range r.set.Limits {
		if c := r.counters.Existing(i); c != nil {
			hits += c.ExceededHits()
		}
	}
	return hits
}

// TestExceededHitsOfRuntimeMetrics checks that hits admitted beyond a limit during an outage are
// counted, also by metrics with values of requests.
func TestExceededHitsOfRuntimeMetrics(t *testing.T) {
	for _, detailed := range []bool{false, true} {
		s := service(t, Settings{}, fmt.Sprintf("{domain: d, descriptors: [{key: k, detailed_metric: %v, rate_limit: {requests_per_unit: 10, unit: hour}}]}", detailed))
		x := &Exchange{}
		for _, value := range []string{"a", "b"} {
			if _, _, err := s.Answer(noon, time.Minute, x, marshal(t, oneDescriptor(0, "k", value))); err != nil {
				t.Fatal(err)
			}
			x.service, x.rules = s, s.rules.Load()
			x.Exceeded(0)(7)
		}
		if got := exceeded(s); got != 14 {
			t.Errorf("detailed_metric %v: %d hits were beyond the limit, want 14", detailed, got)
		}
	}
}

// TestExceededHitsOfNamedRows checks the same for a limit whose table row has a name in metrics.
func TestExceededHitsOfNamedRows(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second, table: t}}]}")
	e, err := r.tables.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 3, Name: "gold"}); err != nil {
		t.Fatal(err)
	}
	x := &Exchange{}
	if _, _, err := r.service.Answer(r.now, time.Minute, x, r.request()); err != nil {
		t.Fatal(err)
	}
	x.service, x.rules = r.service, r.service.rules.Load()
	x.Exceeded(0)(7)
	if got := exceeded(r.service); got != 7 {
		t.Errorf("%d hits were beyond the limit, want 7", got)
	}
}
