//go:build more

package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

const seriesRules = `
domain: ours
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: plan, value: free, rate_limit: { unit: day, requests_per_unit: 4000000000 } }
---
domain: theirs
descriptors:
  - { key: detailed, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: "value*", value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: plain, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: configured, rate_limit: { unit: day, requests_per_unit: 4000000000 } }
`

// TestMetricSeriesAreBounded sends new values, overrides and unknown domains continuously. Series
// and memory stay bounded, configured rules keep their series, and limits of another domain stay
// exact.
func TestMetricSeriesAreBounded(t *testing.T) {
	t.Parallel()
	const (
		established = 200
		used, limit = 57, 100
		each        = 500 // descriptors per request
		growth      = 24 << 20
		clients     = 4
	)
	all := min(effort.Times(t, 100_000), 1_000_000)
	limits := startPlain(t, []string{"GOMEMLIMIT=64MiB"}, "--counter-memory", "4MiB", "--config", suite.WriteRules(t, seriesRules))
	client := rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))
	call := func(r *rls.RateLimitRequest) *rls.RateLimitResponse {
		got, err := client.ShouldRateLimit(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	hit := func(hits uint64, code rls.RateLimitResponse_Code, remaining uint32) {
		t.Helper()
		r := &rls.RateLimitRequest{Domain: "ours"}
		for i := range established {
			r.Descriptors = append(r.Descriptors, descriptor("user", fmt.Sprint("u", i), hits))
		}
		for _, s := range call(r).GetStatuses() {
			if s.GetCode() != code || s.GetLimitRemaining() != remaining {
				t.Fatalf("%d hits on an established counter: %v with %d remaining, want %v with %d", hits, s.GetCode(), s.GetLimitRemaining(), code, remaining)
			}
		}
	}
	window.AwaitHour(t)
	hit(used, rls.RateLimitResponse_OK, limit-used)
	call(&rls.RateLimitRequest{Domain: "ours", Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("plan", "free", 3)}})
	// A name beyond the bounds uses one of the runtime entries but has no series. The flood also
	// sends that name, and would by chance send it before or after the entries are used up.
	alias := descriptor("other", "", 1)
	alias.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR}
	call(&rls.RateLimitRequest{Domain: "ours", Descriptors: []*rlcommon.RateLimitDescriptor{alias}})
	fresh := metricsPage(t, limits)

	flood := func(from, to int) int {
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				for i := from + c*each; i < to; i += clients * each {
					call(newKeysRequest(i, each))
					// Metrics are scraped during the flood.
					if i%(50*each) == 0 {
						metricsPage(t, limits)
					}
				}
			})
		}
		wg.Wait()
		metricsPage(t, limits)
		return residentBytes(t, limits)
	}
	// The first half may allocate buffers. The second half must not need more memory.
	before := flood(0, all/2)
	grown := flood(all/2, all) - before
	if grown > growth {
		t.Errorf("memory grew by %d bytes in the second half, want at most %d", grown, growth)
	}
	hit(limit-used, rls.RateLimitResponse_OK, 0)
	hit(1, rls.RateLimitResponse_OVER_LIMIT, 0)
	call(&rls.RateLimitRequest{Domain: "theirs", Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("configured", "v", 7)}})

	flooded := metricsPage(t, limits)
	const most = 1000 + 2   // values, and `other` of each domain
	const domains = 100 + 1 // domains without rules, and `other`
	if got, want := countSeries(flooded), countSeries(fresh)+6*most+domains; got > want {
		t.Errorf("%d series exist, want at most %d", got, want)
	}
	for line, why := range map[string]string{
		`sluice_rule_series{kind="runtime"} 999`: "the flood uses all runtime entries of its domain",
		`ratelimit_service_rate_limit_total_hits{domain="ours",key1="user",key2="",limit="",rule="user"} 20200`:           "each hit on the domain ours is counted for its rule",
		`ratelimit_service_rate_limit_over_limit{domain="ours",key1="user",key2="",limit="",rule="user"} 200`:             "each denied hit on the domain ours is counted",
		`ratelimit_service_rate_limit_total_hits{domain="ours",key1="plan_free",key2="",limit="",rule="plan_free"} 3`:     "a configured value has its own series",
		`ratelimit_service_rate_limit_total_hits{domain="theirs",key1="configured",key2="",limit="",rule="configured"} 7`: "a configured rule of the flooded domain keeps its series",
	} {
		if !strings.Contains(flooded, "\n"+line+"\n") {
			t.Errorf("no series %s: %s", line, why)
		}
	}
	// Of ten requests, two are for ours and seven for theirs. Hits without their own series are
	// counted exactly in `other`.
	for domain, want := range map[string]int{"ours": all/10*2 + established*(limit+1) + 3 + 1, "theirs": all/10*7 + 7} {
		if got := int(metric(t, limits, "ratelimit_service_rate_limit_total_hits", fmt.Sprintf("domain=%q", domain))); got != want {
			t.Errorf("domain %s has %d hits in all series, want %d", domain, got, want)
		}
	}
	if len(flooded) > 4<<20 {
		t.Errorf("/metrics has %d bytes, want at most 4 MiB", len(flooded))
	}
	for _, name := range []string{"sluice_rule_series_other_total", "sluice_unknown_domain_descriptors_total", "sluice_ignored_overrides_total"} {
		if metric(t, limits, name) == 0 {
			t.Errorf("%s is 0; want a larger flood", name)
		}
	}
	t.Logf("%d descriptors: %d series before, %d after; %d KiB of /metrics; memory grew by %d KiB from %d in the second half",
		all, countSeries(fresh), countSeries(flooded), len(flooded)>>10, grown>>10, before>>10)
}

func descriptor(key, value string, hits uint64) *rlcommon.RateLimitDescriptor {
	return &rlcommon.RateLimitDescriptor{
		Entries:    []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		HitsAddend: wrapperspb.UInt64(hits),
	}
}

// newKeysRequest returns a request with n new descriptors.
func newKeysRequest(from, n int) *rls.RateLimitRequest {
	domain := "theirs"
	switch from / n % 10 {
	case 3:
		domain = fmt.Sprint("unknown", from)
	case 4, 5:
		domain = "ours" // limits in the request
	}
	r := &rls.RateLimitRequest{Domain: domain}
	for i := from; i < from+n; i++ {
		value := fmt.Sprint("v", i)
		d := descriptor("detailed", value, 1)
		switch {
		case domain == "ours" || i%5 == 1:
			d = descriptor(fmt.Sprint("k", i), value, 1)
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR}
		case i%5 == 2:
			d = descriptor("plain", value, 1)
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_MINUTE}
		case i%5 == 3:
			d = descriptor(fmt.Sprint("value", i), "\n\"é"+value, 1)
		case i%5 == 4:
			d = descriptor("plain", value, 1)
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}
		}
		if i == from && d.GetLimit() != nil {
			d.Entries[0] = &rlcommon.RateLimitDescriptor_Entry{Key: "other"} // the replacement for names beyond the bounds
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func metricsPage(t *testing.T, s *sluice.Sluice) string {
	t.Helper()
	return string(suite.Metrics(t, s))
}

// countSeries returns the number of series that clients can create: those of limits and of calls.
func countSeries(page string) int {
	n := 0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go_") && !strings.HasPrefix(line, "process_") {
			n++
		}
	}
	return n
}
