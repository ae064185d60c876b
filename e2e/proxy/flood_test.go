//go:build more

package proxy_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// counterKind identifies the counters of one rule.
type counterKind struct{ domain, key string }

// TestFloodEvictsItself sends new values, each once, with far too little memory for them, and in a
// domain with few counters. Counters that existed before keep exact limits.
func TestFloodEvictsItself(t *testing.T) {
	t.Parallel()
	const (
		fixed   = "domain: d\ndescriptors:\n  - { key: fixed, rate_limit: { unit: day, requests_per_unit: 100 } }\n"
		token   = "  - { key: token, rate_limit: { unit: day, requests_per_unit: 100, algorithm: token_bucket } }\n"
		sliding = "  - { key: sliding, rate_limit: { unit: day, requests_per_unit: 100, algorithm: sliding_window, sub_windows: 24 } }\n"
		small   = "---\ndomain: small\nmax_counters: 1000\ndescriptors:\n" + token
	)
	for name, tt := range map[string]struct {
		rules string
		kinds []counterKind // in the order of their floods
	}{
		"fixed windows and a bounded domain": {fixed + small, []counterKind{{"d", "fixed"}, {"small", "token"}}},
		"token buckets":                      {"domain: d\ndescriptors:\n" + token, []counterKind{{"d", "token"}}},
		"windows and then buckets":           {fixed + token, []counterKind{{"d", "fixed"}, {"d", "token"}}},
		"windows of two algorithms":          {fixed + sliding, []counterKind{{"d", "fixed"}, {"d", "sliding"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFloodEvictsItself(t, tt.rules, tt.kinds)
		})
	}
}

func testFloodEvictsItself(t *testing.T, rules string, kinds []counterKind) {
	t.Helper()
	const (
		established = 200
		used        = 57
		limit       = 100
		values      = 300_000 // total of all floods
		each        = 1000    // descriptors per request
		clients     = 4
		growth      = 24 << 20
	)
	// The memory limit makes the measurement independent of the garbage collector's pacing.
	limits := startPlain(t, []string{"GOMEMLIMIT=48MiB"}, "--counter-memory", "1MiB", "--config", suite.WriteRules(t, rules))
	client := rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))
	// send sends hits for n values and returns their statuses.
	send := func(k counterKind, value string, from, n int, hits uint64) []*rls.RateLimitResponse_DescriptorStatus {
		r := &rls.RateLimitRequest{Domain: k.domain}
		for i := range n {
			r.Descriptors = append(r.Descriptors, &rlcommon.RateLimitDescriptor{
				Entries:    []*rlcommon.RateLimitDescriptor_Entry{{Key: k.key, Value: fmt.Sprint(value, from+i)}},
				HitsAddend: wrapperspb.UInt64(hits),
			})
		}
		got, err := client.ShouldRateLimit(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		return got.GetStatuses()
	}
	expect := func(hits uint64, code rls.RateLimitResponse_Code, remaining uint32) {
		t.Helper()
		for _, k := range kinds {
			statuses := send(k, "old", 0, established, hits)
			wrong := slices.DeleteFunc(slices.Clone(statuses), func(s *rls.RateLimitResponse_DescriptorStatus) bool {
				return s.GetCode() == code && s.GetLimitRemaining() == remaining
			})
			if len(statuses) != established || len(wrong) > 0 {
				t.Errorf("%s of %s, %d hits: %d statuses, of which %d are not %v with %d remaining: %v",
					k.key, k.domain, hits, len(statuses), len(wrong), code, remaining, wrong)
			}
		}
	}
	flood := func(value string) (resides int) {
		for _, k := range kinds {
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					for from := i * each; from < values/2/len(kinds); from += clients * each {
						send(k, value, from, each, 1)
					}
				})
			}
			wg.Wait()
		}
		return residentBytes(t, limits)
	}
	window.AwaitHour(t)
	expect(used, rls.RateLimitResponse_OK, limit-used)
	// The first half may allocate buffers. The second half must not need more memory.
	before := flood("new")
	grown := flood("newer") - before
	expect(limit-used, rls.RateLimitResponse_OK, 0)
	expect(1, rls.RateLimitResponse_OVER_LIMIT, 0)

	lost := metric(t, limits, "sluice_counters_evicted_total")
	if lost == 0 {
		t.Error("no counter was evicted; want a larger flood")
	}
	if grown > growth {
		t.Errorf("memory grew by %d bytes, want at most %d", grown, growth)
	}
	t.Logf("%v counters evicted, capacity %v, memory grew by %d KiB from %d in the second half",
		lost, metric(t, limits, "sluice_counters_capacity"), grown>>10, before>>10)
}
