package answer

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// benchNow is the time of all requests: within one window of every rule.
const benchNow = limiter.Time(1_700_000_000_123_456_789)

// benchService returns a service with the given rules.
func benchService(tb testing.TB, settings Settings, rules string) *Service {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(rules))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{HashKey: identity.Key{1}})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	table, err := limiter.New(limiter.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	settings.Bounds = fillBounds(settings.Bounds)
	s := NewService(settings, table, newMetrics(tb))
	if err := s.SetRules(0, set); err != nil {
		tb.Fatal(err)
	}
	return s
}

// benchRules are typical rules: a limit for each user, path and method, and one for each address of
// a plan.
const benchRules = `
domain: edge
descriptors:
  - key: user
    descriptors:
      - key: path
        value: /api/*
        descriptors:
          - key: method
            rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: remote_address
    descriptors:
      - key: plan
        value: free
        rate_limit: {unit: minute, requests_per_unit: 4000000000}
`

// benchRequests returns n encoded requests with two descriptors and five entries in total. Each has
// its own counters.
func benchRequests(b *testing.B, n int) [][]byte {
	b.Helper()
	requests := make([][]byte, n)
	for i := range requests {
		requests[i] = marshal(b, &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{
				entry("user", fmt.Sprintf("user-%06d", i)), entry("path", "/api/v1/orders"), entry("method", "GET"),
			}},
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{
				entry("remote_address", fmt.Sprintf("203.%d.%d.7", i>>8&0xff, i&0xff)), entry("plan", "free"),
			}},
		}})
	}
	return requests
}

// benchEach calls f with one request after another. In addition to ns/op it reports cpu-ns/op,
// which does not grow when other processes use the cores, and includes the garbage collector.
func benchEach(b *testing.B, requests [][]byte, f func(request []byte)) {
	b.Helper()
	b.ReportAllocs()
	i := 0
	before := benchCPU(b)
	for b.Loop() {
		f(requests[i])
		if i++; i == len(requests) {
			i = 0
		}
	}
	b.ReportMetric(float64(benchCPU(b)-before)/float64(b.N), "cpu-ns/op")
}

// benchCPU returns the processor time that this process has used.
func benchCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchThrough contains the steps of [Service.Answer]. Each includes all earlier steps, so the cost
// of a step is the difference to the previous one, measured with realistic caches.
var benchThrough = []struct {
	name string
	run  func(s *Service, c *Exchange, request []byte) error
}{
	{"decode", func(_ *Service, c *Exchange, request []byte) error {
		c.decoder.reset()
		return c.decoder.decode(request, &unbounded)
	}},
	{"plan", func(s *Service, c *Exchange, request []byte) error {
		c.decoder.reset()
		err := c.decoder.decode(request, &unbounded)
		s.rules.Load().set.Plan(&c.plan, &c.decoder.req, descriptors.Global{})
		return err
	}},
	{"decide", func(s *Service, c *Exchange, request []byte) error {
		c.decoder.reset()
		err := c.decoder.decode(request, &unbounded)
		s.rules.Load().set.Plan(&c.plan, &c.decoder.req, descriptors.Global{})
		s.table.Decide(benchNow, &c.plan.Batch)
		return err
	}},
	{"count", func(s *Service, c *Exchange, request []byte) error {
		c.decoder.reset()
		err := c.decoder.decode(request, &unbounded)
		rules := s.rules.Load()
		rules.set.Plan(&c.plan, &c.decoder.req, descriptors.Global{})
		s.table.Decide(benchNow, &c.plan.Batch)
		c.fillStatuses()
		s.countRequest(rules, c)
		return err
	}},
	{"reply", func(s *Service, c *Exchange, request []byte) error {
		_, _, err := s.Answer(benchNow, 0, c, request)
		return err
	}},
}

// BenchmarkAnswer measures a request without gRPC; through=reply is the complete request.
func BenchmarkAnswer(b *testing.B) {
	for _, counters := range []int{1, 10_000} {
		requests := benchRequests(b, counters)
		for _, step := range benchThrough {
			b.Run(fmt.Sprintf("descriptors=2/entries=5/requests=%d/through=%s", counters, step.name), func(b *testing.B) {
				s, c := benchService(b, Settings{NearLimitRatio: 0.8}, benchRules), &Exchange{}
				for _, request := range requests { // fill the table of counters
					if _, _, err := s.Answer(benchNow, 0, c, request); err != nil {
						b.Fatal(err)
					}
				}
				benchEach(b, requests, func(request []byte) {
					if err := step.run(s, c, request); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

// BenchmarkHandler measures a request without gRPC, but with the clock, the response time and all
// metrics.
func BenchmarkHandler(b *testing.B) {
	for _, counters := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("descriptors=2/entries=5/requests=%d", counters), func(b *testing.B) {
			h := NewHandler(benchService(b, Settings{NearLimitRatio: 0.8}, benchRules), zap.NewNop(), nil, false)
			x := new(Exchange)
			answer := func(request []byte) {
				x.Request = request
				if err := h.Answer(b.Context(), x, nil); err != nil {
					b.Fatal(err)
				}
			}
			requests := benchRequests(b, counters)
			for _, request := range requests { // fill the table
				answer(request)
			}
			benchEach(b, requests, answer)
		})
	}
}

// BenchmarkProtobufUnmarshal is the reference for BenchmarkAnswer: the time that generated code
// needs to decode the same requests.
func BenchmarkProtobufUnmarshal(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("descriptors=2/entries=5/requests=%d", n), func(b *testing.B) {
			benchEach(b, benchRequests(b, n), func(request []byte) {
				var m rls.RateLimitRequest
				if err := proto.Unmarshal(request, &m); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkAnswerParallel measures the scaling with -cpu 1,2,4: with counter=one all goroutines
// share a limit, with counter=own each has its own.
func BenchmarkAnswerParallel(b *testing.B) {
	requests := benchRequests(b, 64)
	for _, counter := range []string{"one", "own"} {
		b.Run("descriptors=2/entries=5/counter="+counter, func(b *testing.B) {
			s := benchService(b, Settings{NearLimitRatio: 0.8}, benchRules)
			next := make(chan []byte, len(requests))
			for _, request := range requests {
				next <- request
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				c, request := &Exchange{}, requests[0]
				if counter == "own" {
					request = <-next
				}
				for pb.Next() {
					if _, _, err := s.Answer(benchNow, 0, c, request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

const allocRules = `
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: full
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: list
    rate_limits:
      - {unit: minute, requests_per_unit: 4000000000}
      - {unit: day, requests_per_unit: 4000000000, unit_multiplier: 2}
  - key: full_list
    rate_limits:
      - {unit: minute, requests_per_unit: 4000000000}
      - {unit: day, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: replacing
    rate_limit: {unit: hour, requests_per_unit: 4000000000, replaces: [{name: base}]}
  - key: base
    rate_limit: {name: base, unit: hour, requests_per_unit: 1}
---
domain: all
all_or_nothing: true
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: full
    rate_limit: {unit: day, requests_per_unit: 1}
`

// TestAnswerDoesNotAllocate checks an Exchange that has served such a request before, as pooled
// ones have. The exception is dynamic metadata of rules with metadata, which is merged through a
// new list for each request.
func TestAnswerDoesNotAllocate(t *testing.T) {
	of := func(domain string, ds ...*rlcommon.RateLimitDescriptor) []byte {
		return marshal(t, &rls.RateLimitRequest{Domain: domain, Descriptors: ds})
	}
	d := func(key string) *rlcommon.RateLimitDescriptor {
		return &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(key, "a value")}}
	}
	override := func(key string, limit uint32) *rlcommon.RateLimitDescriptor {
		desc := d(key)
		desc.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: limit, Unit: typev3.RateLimitUnit_HOUR}
		return desc
	}
	peek := d("user")
	peek.HitsAddend = wrapperspb.UInt64(0)
	refund := d("user")
	refund.IsNegativeHits = true

	headers := Settings{
		ResponseHeaders: true, Headers: Headers{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, RetryAfterHeader: true,
		RequestHeaders: true, RequestNames: RequestHeaders{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, NoMetricDots: true,
	}
	metadata := Settings{DynamicMetadata: true}
	decisions := Settings{DecisionMetadata: true}
	for _, test := range []struct {
		name     string
		settings Settings
		request  []byte
		over     bool
	}{
		{"one descriptor", Settings{}, of("d", d("user")), false},
		{"ten descriptors", Settings{}, of("d", d("user"), d("list"), d("free"), d("no"), d("base"), d("user"), d("user"), d("list"), d("shadow"), d("full")), true},
		{"denied", Settings{}, of("d", d("full")), true},
		{"list", Settings{}, of("d", d("list")), false},
		{"denied list", Settings{}, of("d", d("full_list")), true},
		{"all_or_nothing", Settings{}, of("all", d("user"), d("path")), false},
		{"denied all_or_nothing", Settings{}, of("all", d("user"), d("full"), d("path")), true},
		{"override", Settings{}, of("d", override("user", 4_000_000_000)), false},
		{"override without a rule", Settings{}, of("d", override("no", 4_000_000_000), override("free", 7)), true},
		{"unlimited", Settings{}, of("d", d("free")), false},
		{"no rule", Settings{}, of("d", d("no")), false},
		{"unknown domain", Settings{}, of("strange", d("user")), false},
		{"shadow", Settings{}, of("d", d("shadow")), false},
		{"shadow mode", Settings{ShadowMode: true}, of("d", d("full")), false},
		{"quota", Settings{}, of("d", d("quota"), d("user")), true},
		{"quota mode", Settings{QuotaMode: true}, of("d", d("full"), d("user")), false},
		{"replaced", Settings{}, of("d", d("replacing"), d("base")), false},
		{"peek", Settings{}, of("d", peek), false},
		{"refund", Settings{}, of("d", refund, d("user")), false},
		{"detailed metric", Settings{}, of("d", d("detailed")), false},
		{"headers", headers, of("d", d("user"), d("list")), false},
		{"denied with headers", headers, of("d", d("user"), d("full")), true},
		{"metadata of no rule", metadata, of("d", d("user"), override("no", 4_000_000_000)), false},
		{"decision metadata", decisions, of("d", d("user"), d("full_list")), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := benchService(t, test.settings, allocRules), &Exchange{}
			answer := func() {
				if _, _, err := s.Answer(benchNow, 0, c, test.request); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 { // exhausts limits and grows the exchange
				answer()
			}
			if c.OverLimit() != test.over {
				t.Fatalf("OverLimit() = %v, want %v", c.OverLimit(), test.over)
			}
			if got := must.AllocsPerRun(100, answer); got != 0 {
				t.Errorf("Answer allocates %v times, want 0", got)
			}
		})
	}
}
