package answer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// structuredHeadersOf returns the structured headers of the reply to a request for the given keys.
func structuredHeadersOf(t *testing.T, s *Service, now limiter.Time, keys ...string) (policy, limits string) {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d"}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}})
	}
	b, _, err := s.Answer(now, 0, &Exchange{}, marshal(t, request))
	must.OK(t, err)
	var reply rls.RateLimitResponse
	must.OK(t, proto.Unmarshal(b, &reply))
	for _, h := range reply.GetResponseHeadersToAdd() {
		switch h.GetKey() {
		case "RateLimit-Policy":
			policy = h.GetValue()
		case "RateLimit":
			limits = h.GetValue()
		}
	}
	return policy, limits
}

func TestStructuredHeaders(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: window, rate_limit: {name: w, unit: hour, requests_per_unit: 5}}
- {key: ring, rate_limit: {name: ring, unit: minute, requests_per_unit: 5, algorithm: sliding_window}}
- {key: log, rate_limit: {name: log, unit: day, requests_per_unit: 5, algorithm: sliding_log}}
- {key: token, rate_limit: {name: token, unit: hour, requests_per_unit: 60, algorithm: token_bucket, burst: 10}}
- {key: fast, rate_limit: {name: fast, unit: second, requests_per_unit: 2000000, algorithm: token_bucket, burst: 7}}
- {key: leaky, rate_limit: {name: leaky, unit: hour, requests_per_unit: 60, algorithm: leaky_bucket, slack: 2}}
- {key: permits, rate_limit: {name: permits, unit: hour, requests_per_unit: 3, algorithm: concurrency}}
- {key: never, rate_limit: {name: never, unit: hour, requests_per_unit: 0, algorithm: token_bucket, burst: 1}}
- {key: unnamed, rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: shadow, shadow_mode: true, rate_limit: {name: tried, unit: hour, requests_per_unit: 5}}
- {key: odd, rate_limit: {name: "a\"b\\c\r\né", unit: hour, requests_per_unit: 5}}
- key: list
  rate_limits:
  - {name: short, unit: minute, requests_per_unit: 2}
  - {name: long, unit: day, requests_per_unit: 9}
- key: share
  charge: first_with_room
  rate_limits:
  - {name: own, unit: minute, requests_per_unit: 1}
  - {name: pool, unit: day, requests_per_unit: 9, counter: pool}
`
	at := limiter.Time(1_800_000_000 * int64(time.Second)) // 8:00:00 UTC
	for _, tt := range []struct {
		keys           string
		policy, limits string
	}{
		{"window", `"w";q=5;w=3600`, `"w";r=4;t=3600`},
		{"ring", `"ring";q=5;w=60`, `"ring";r=4;t=66`},
		{"log", `"log";q=5;w=86400`, `"log";r=4;t=86400`},
		{"token", `"token";q=10;w=600`, `"token";r=9;t=60`},
		{"token token token", `"token";q=10;w=600`, `"token";r=7;t=60`},
		{"fast", `"fast";q=7;w=1`, `"fast";r=6;t=1`},
		{"leaky", `"leaky";q=3;w=180`, `"leaky";r=2;t=60`},
		{"leaky leaky leaky leaky", `"leaky";q=3;w=180`, `"leaky";r=0;t=60`},
		{"permits", `"permits";q=3;qu="concurrent-requests"`, `"permits";r=2`},
		{"never", `"never";q=0`, `"never";r=0;t=3600`},
		{"unnamed shadow other", "", ""},
		{"odd", `"a\"b\\c????";q=5;w=3600`, `"a\"b\\c????";r=4;t=3600`},
		{"list window", `"short";q=2;w=60, "long";q=9;w=86400, "w";q=5;w=3600`, `"short";r=1;t=60, "long";r=8;t=57600, "w";r=4;t=3600`},
		{"list list list", `"short";q=2;w=60, "long";q=9;w=86400`, `"short";r=0;t=60, "long";r=7;t=57600`},
		{"share", `"own";q=1;w=60`, `"own";r=0;t=60`},
		{"share share", `"own";q=1;w=60, "pool";q=9;w=86400`, `"own";r=0;t=60, "pool";r=8;t=57600`},
	} {
		s := service(t, Settings{RateLimitHeaders: "structured"}, rules)
		policy, limits := structuredHeadersOf(t, s, at, strings.Fields(tt.keys)...)
		if policy != tt.policy || limits != tt.limits {
			t.Errorf("%s:\nRateLimit-Policy: %s\nRateLimit: %s\nwant\nRateLimit-Policy: %s\nRateLimit: %s", tt.keys, policy, limits, tt.policy, tt.limits)
		}
	}
}

// TestStructuredHeadersAreBounded sends more names than the headers may have.
func TestStructuredHeadersAreBounded(t *testing.T) {
	keys := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	var list strings.Builder
	for _, c := range keys {
		fmt.Fprintf(&list, "- {key: %s, rate_limit: {name: %s, unit: day, requests_per_unit: 3}}\n", c, c)
	}
	rules := "domain: d\ndescriptors:\n" + list.String()
	s := service(t, Settings{RateLimitHeaders: "structured"}, rules)
	long := strings.Repeat("n", 10_000)
	if policy, _ := structuredHeadersOf(t, service(t, Settings{RateLimitHeaders: "structured"}, strings.Replace(rules, "name: a", "name: "+long, 1)), noon, "a"); len(policy) > 276 {
		t.Errorf("a name of %d bytes makes a header of %d", len(long), len(policy))
	}
	policy, limits := structuredHeadersOf(t, s, noon, slices.Concat(keys, keys)...)
	for _, header := range []string{policy, limits} {
		if n := strings.Count(header, ", ") + 1; n != maxStructured {
			t.Errorf("%d limits in %s, want %d", n, header, maxStructured)
		}
	}
	s = service(t, Settings{RateLimitHeaders: "structured"}, rules)
	_, limits = structuredHeadersOf(t, s, noon, slices.Concat(keys, []string{"z", "z", "z"})...) // the limit is 3
	if !strings.HasPrefix(limits, `"a"`) || !strings.Contains(limits, `"o";r=`) || !strings.HasSuffix(limits, `"z";r=0;t=43200`) || strings.Contains(limits, `"p"`) {
		t.Errorf("the limits are %s, want the first 15 and z, which denies", limits)
	}
}

func TestStructuredHeadersAllocateNothing(t *testing.T) {
	s := service(t, Settings{RateLimitHeaders: "structured"}, "domain: d\ndescriptors: [{key: k, rate_limit: {name: a, unit: day, requests_per_unit: 5, algorithm: token_bucket, burst: 3}}]")
	x, request := &Exchange{}, marshal(t, &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}},
	})
	if n := must.AllocsPerRun(100, func() {
		_, _, err := s.Answer(noon, 0, x, request)
		must.OK(t, err)
	}); n != 0 {
		t.Errorf("a reply with structured headers allocates %v times, want 0", n)
	}
}

// TestRetryAfterIsNotBeforeReset sends more hits than a fixed window ever admits. Retry-After is the
// time of the other limit of the list, which ends later.
func TestRetryAfterIsNotBeforeReset(t *testing.T) {
	const rules = `
domain: d
denied_response: openai
descriptors:
- key: k
  rate_limits:
  - {name: fixed, unit: day, requests_per_unit: 5, count_refused: false}
  - {name: log, unit: hour, requests_per_unit: 9, algorithm: sliding_log}
`
	s := service(t, Settings{RateLimitHeaders: "structured"}, rules)
	send := func(now limiter.Time, hits uint32) denied {
		return askAt(t, s, now, &rls.RateLimitRequest{Domain: "d", HitsAddend: hits, Descriptors: []*ratelimitv3.RateLimitDescriptor{keyed("k")}})
	}
	const second = limiter.Time(time.Second)
	night := limiter.Time(1_800_057_600*int64(time.Second)) - 600*second // ten minutes before midnight
	send(night-second, 5)
	got := strings.Join(send(night, 8).headers, "\n")
	for _, want := range []string{`RateLimit: "fixed";r=0;t=600, "log";r=0;t=3599`, "Retry-After: 3599", "retry-after-ms: 3599000"} {
		if !strings.Contains(got, want) {
			t.Errorf("headers are %s, want %s", got, want)
		}
	}
}
