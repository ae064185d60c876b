package answer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// noon is in the middle of every window of up to a day.
const noon = limiter.Time(1_800_014_400 * time.Second)

// compile compiles a rule file.
func compile(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

func newMetrics(tb testing.TB) *telemetry.Metrics {
	tb.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// service returns a new service with the given rules, or without rules.
func service(tb testing.TB, settings Settings, rules string) *Service {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	settings.Bounds = fillBounds(settings.Bounds)
	s := NewService(settings, table, newMetrics(tb))
	if rules != "" {
		if err := s.SetRules(0, compile(tb, rules)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func TestAnswerErrors(t *testing.T) {
	with := service(t, Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}")
	without := service(t, Settings{}, "")
	one := []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")}}}
	for _, test := range []struct {
		name    string
		service *Service
		request []byte
		want    error
		// The gRPC codes, compatible and precise.
		code, precise codes.Code
	}{
		{"no domain", with, marshal(t, &rls.RateLimitRequest{Descriptors: one}), errEmptyDomain, codes.Unknown, codes.InvalidArgument},
		{"no descriptors", with, marshal(t, &rls.RateLimitRequest{Domain: "d"}), errNoDescriptors, codes.Unknown, codes.InvalidArgument},
		{"nothing", with, nil, errEmptyDomain, codes.Unknown, codes.InvalidArgument},
		{"no rules", without, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: one}), errNoRules, codes.Unknown, codes.Unavailable},
		{"no rules and no domain", without, marshal(t, &rls.RateLimitRequest{Descriptors: one}), errEmptyDomain, codes.Unknown, codes.InvalidArgument},
		{"malformed", with, []byte{0x0a}, errMalformed, codes.Internal, codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Exchange
			reply, _, err := test.service.Answer(noon, 0, &c, test.request)
			if !errors.Is(err, test.want) || reply != nil {
				t.Errorf("Answer() = %x, %v, want %v", reply, err, test.want)
			}
			if got := statusCode(err, false); got != test.code {
				t.Errorf("code(%v, false) = %v, want %v", err, got, test.code)
			}
			if got := statusCode(err, true); got != test.precise {
				t.Errorf("code(%v, true) = %v, want %v", err, got, test.precise)
			}
		})
	}
}

func TestResetIsRoundedUp(t *testing.T) {
	s := service(t, Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 9}}]}")
	for _, test := range []struct {
		at   time.Duration // after the start of a minute
		want int64
	}{
		{0, 60}, {1, 60}, {time.Second, 59}, {time.Second + 1, 59}, {59 * time.Second, 1}, {time.Minute - 1, 1}, {time.Minute, 60},
	} {
		var c Exchange
		b, _, err := s.Answer(noon+limiter.Time(test.at), 0, &c, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", test.at.String())}}}}))
		if err != nil {
			t.Fatal(err)
		}
		var reply rls.RateLimitResponse
		if err := proto.Unmarshal(b, &reply); err != nil {
			t.Fatal(err)
		}
		if got := reply.GetStatuses()[0].GetDurationUntilReset(); got.GetSeconds() != test.want || got.GetNanos() != 0 {
			t.Errorf("at %v: reset is %v, want %ds", test.at, got, test.want)
		}
	}
}

// randomRules uses every field that changes an answer.
const randomRules = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 3, name: a}}
  - {key: a, value: x, rate_limit: {unit: hour, requests_per_unit: 4294967295}}
  - {key: a, value: "x*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 50}}
  - key: b
    rate_limits: [{unit: minute, requests_per_unit: 5}, {unit: day, unit_multiplier: 3, requests_per_unit: 9, name: slow}]
    descriptors:
      - {key: c, shadow_mode: true, rate_limit: {unit: week, requests_per_unit: 1}}
      - {key: d, quota_mode: true, metadata: {p: {q: 1}}, rate_limit: {unit: month, requests_per_unit: 0}}
      - {key: e, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 7, count_refused: false}}
  - {key: f, rate_limit: {unlimited: true, name: free, replaces: [{name: a}]}}
  - {key: "g*", value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 2, replaces: [{name: slow}]}}
---
domain: e
all_or_nothing: true
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: b, quota_mode: true, rate_limits: [{unit: minute, requests_per_unit: 5}, {unit: hour, requests_per_unit: 9, count_refused: true}]}
  - {key: c, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// randomRequest returns a request that usually matches a rule.
func randomRequest(r *rand.Rand) *rls.RateLimitRequest {
	pickString := func(of ...string) string { return of[r.IntN(len(of))] }
	hits := func() uint64 {
		return []uint64{0, 1, 2, 7, 1 << 32, 1<<64 - 1, r.Uint64()}[r.IntN(7)]
	}
	request := &rls.RateLimitRequest{Domain: pickString("d", "d", "d", "e", "e", "", "other")}
	if r.IntN(2) == 0 {
		request.HitsAddend = uint32(hits())
	}
	for range r.IntN(6) {
		d := &rlcommon.RateLimitDescriptor{IsNegativeHits: r.IntN(8) == 0}
		for range r.IntN(4) {
			value := pickString("", "x", "xy", "*", strconv.Itoa(r.IntN(1000)), "10.0.0.1")
			d.Entries = append(d.Entries, entry(pickString("a", "b", "c", "d", "e", "f", "g", "gh", ""), value))
		}
		if r.IntN(4) == 0 {
			d.HitsAddend = wrapperspb.UInt64(hits())
		}
		if r.IntN(8) == 0 {
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(hits()), Unit: typev3.RateLimitUnit(r.IntN(10) - 1)}
			if r.IntN(2) == 0 {
				d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(hits()))
			}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// checkReply checks the invariants of every reply.
func checkReply(request *rls.RateLimitRequest, b []byte, shadow bool) error {
	var reply rls.RateLimitResponse
	if err := proto.Unmarshal(b, &reply); err != nil {
		return err
	}
	if len(reply.GetStatuses()) != len(request.GetDescriptors()) {
		return fmt.Errorf("%d statuses, want %d", len(reply.GetStatuses()), len(request.GetDescriptors()))
	}
	over := false
	for i, s := range reply.GetStatuses() {
		isOver := s.GetCode() == rls.RateLimitResponse_OVER_LIMIT
		over = over || isOver
		switch {
		case !isOver && s.GetCode() != rls.RateLimitResponse_OK:
			return fmt.Errorf("status %d has code %v", i, s.GetCode())
		case isOver && (s.GetLimitRemaining() != 0 || s.GetCurrentLimit() == nil || request.GetDescriptors()[i].GetIsNegativeHits()):
			return fmt.Errorf("status %d is over: %v", i, s)
		case (s.GetCurrentLimit() != nil) != (s.GetDurationUntilReset().GetSeconds() >= 1):
			return fmt.Errorf("status %d has a limit without a reset or the reverse: %v", i, s)
		}
	}
	switch reply.GetOverallCode() {
	case rls.RateLimitResponse_OK:
	case rls.RateLimitResponse_OVER_LIMIT:
		if !over || shadow {
			return fmt.Errorf("over limit without a status that is: %v", &reply)
		}
	default:
		return fmt.Errorf("overall code %v", reply.GetOverallCode())
	}
	return nil
}

// TestRandomRequests sends a million requests to one service. Every reply is well formed, and
// memory does not grow.
func TestRandomRequests(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (set SLUICE_SEED to run it again)", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	settings := Settings{
		NearLimitRatio: 0.8, DynamicMetadata: true, DecisionMetadata: true, RetryAfterHeader: true,
		ResponseHeaders: true, Headers: Headers{Limit: "l", Remaining: "r", Reset: "t"},
		RequestHeaders: true, RequestNames: RequestHeaders{Limit: "l", Reset: "t"}, NoMetricDots: true,
	}
	s := service(t, settings, randomRules)
	const pool = 20_000
	requests := make([]*rls.RateLimitRequest, pool)
	encoded := make([][]byte, pool)
	for i := range requests {
		requests[i] = randomRequest(r)
		encoded[i] = marshal(t, requests[i])
	}
	var c Exchange
	now := noon
	for n := range effort.Times(t, 100_000) {
		i := r.IntN(pool)
		now += limiter.Time(r.Int64N(int64(40 * time.Millisecond)))
		if r.IntN(1000) == 0 {
			now -= limiter.Time(r.Int64N(int64(2 * time.Hour))) // the clock is set back
		}
		b, _, err := s.Answer(now, 0, &c, encoded[i])
		wantErr := requests[i].GetDomain() == "" || len(requests[i].GetDescriptors()) == 0
		if (err != nil) != wantErr {
			t.Fatalf("request %d: error %v for %v", n, err, requests[i])
		}
		// Decoding a reply costs more than encoding it, so only a part is checked.
		if err == nil && n%16 == 0 {
			if err := checkReply(requests[i], b, false); err != nil {
				t.Fatalf("request %d: %v\n%v", n, err, requests[i])
			}
		}
	}
	if st := s.table.Stats(); st.Bytes > 1<<20 {
		t.Errorf("counters take %d bytes, want at most %d", st.Bytes, 1<<20)
	}
	families, err := s.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		series += len(f.GetMetric())
	}
	if limit := 6*(telemetry.MaxRuntime+30) + 200; series > limit {
		t.Errorf("%d series, want at most %d", series, limit)
	}
}

func FuzzAnswer(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		f.Add(marshal(f, randomRequest(r)), int64(noon))
	}
	s := service(f, Settings{NearLimitRatio: 0.8, DynamicMetadata: true, DecisionMetadata: true, ResponseHeaders: true, Headers: Headers{Limit: "l"}}, randomRules)
	var c Exchange
	f.Fuzz(func(t *testing.T, in []byte, now int64) {
		b, _, err := s.Answer(limiter.Time(now), 0, &c, in)
		if err != nil {
			return
		}
		request, err := decodeLikeProtobuf(t, in)
		if err != nil {
			t.Fatalf("answered what protobuf rejects: %v", err)
		}
		if err := checkReply(request, b, false); err != nil {
			t.Fatalf("%v\n%v", err, request)
		}
	})
}
