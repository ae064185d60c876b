package proxy_test

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// perRoute is a rate_limits configuration of the only kind in which Envoy uses hits_addend.
const perRoute = `"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute`

const tokensRules = `
descriptors:
  - { key: tokens, rate_limit: { unit: year, requests_per_unit: 10 } }
`

var startCosts = share("costs", tokensRules, listener{routes: `
- match: { path: /cost }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      ` + perRoute + `
      rate_limits:
        - actions: [{ generic_key: { descriptor_key: tokens, descriptor_value: x } }]
          hits_addend: { format: "%REQ(x-cost)%" }
- match: { path: /four }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      ` + perRoute + `
      rate_limits:
        - actions: [{ generic_key: { descriptor_key: tokens, descriptor_value: x } }]
          hits_addend: { number: 4 }
- match: { path: /refund }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      ` + perRoute + `
      rate_limits:
        - actions: [{ generic_key: { descriptor_key: tokens, descriptor_value: x } }]
          hits_addend: { format: "%REQ(x-cost)%", is_negative_hits: true }
`})

func TestRequestCosts(t *testing.T) {
	p, _ := startCosts(t)
	for i, step := range []struct {
		path, cost string
		status     int
		remaining  int
	}{
		{"/cost", "0", 200, 10},
		{"/cost", "3", 200, 7},
		{"/four", "", 200, 3},
		{"/cost", "0", 200, 3},
		{"/cost", "3", 200, 0},
		{"/cost", "0", 200, 0}, // the limit itself is allowed
		{"/refund", "2", 200, 2},
		{"/cost", "1", 200, 1},
		{"/cost", "9", 429, 0}, // counted although denied
		{"/cost", "0", 429, 0},
		{"/refund", "100", 200, 10}, // never above the limit
		{"/cost", "11", 429, 0},
	} {
		got := p.get(t, step.path, "x-cost: "+step.cost)
		if got.status != step.status || got.number("X-Ratelimit-Remaining") != step.remaining {
			t.Errorf("step %d, %s %s: %d and %s remaining, want %d and %d", i+1, step.path, step.cost,
				got.status, got.get("X-Ratelimit-Remaining"), step.status, step.remaining)
		}
	}
}

var startLateCosts = share("late-costs", tokensRules, listener{routes: `
- match: { prefix: / }
  response_headers_to_add:
    - header: { key: x-tokens, value: "%REQ(x-cost)%" }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      ` + perRoute + `
      rate_limits:
        - actions: [{ request_headers: { header_name: x-user, descriptor_key: tokens } }]
          hits_addend: { number: 0 }
        - actions: [{ request_headers: { header_name: x-user, descriptor_key: tokens } }]
          hits_addend: { format: "%RESP(x-tokens)%" }
          apply_on_stream_done: true
`})

// TestCostsAtStreamEnd charges a cost from a response header, as of a service that returns the
// number of tokens used. The request itself charges 0 hits.
func TestCostsAtStreamEnd(t *testing.T) {
	p, limits := startLateCosts(t)
	calls := metric(t, limits, "ratelimit_service_total_requests")
	for i, step := range []struct {
		cost      string
		status    int
		remaining int
		charged   float64
	}{
		{"4", 200, 10, 4},
		{"6", 200, 6, 10},
		{"7", 200, 0, 17},
		// A denied request is also charged at its end, beyond the limit.
		{"5", 429, 0, 22},
		{"0", 429, 0, 22},
	} {
		got := p.get(t, "/", "x-user: al", "x-cost: "+step.cost)
		if got.status != step.status || got.number("X-Ratelimit-Remaining") != step.remaining {
			t.Errorf("step %d: %d and %s remaining, want %d and %d", i+1,
				got.status, got.get("X-Ratelimit-Remaining"), step.status, step.remaining)
		}
		awaitHits(t, limits, "late-costs", "tokens", step.charged)
	}
	// Each request makes two calls, also if it is denied.
	suite.Eventually(t, "10 calls", func() bool {
		return metric(t, limits, "ratelimit_service_total_requests") == calls+10
	})
}

// awaitHits waits for a charge whose reply Envoy does not await.
func awaitHits(t *testing.T, s *sluice.Sluice, domain, key string, want float64) {
	t.Helper()
	suite.Eventually(t, "hits of "+key, func() bool {
		got := metric(t, s, "ratelimit_service_rate_limit_total_hits", `domain="`+domain+`"`, `key1="`+key+`"`)
		if got > want {
			t.Fatalf("%v hits were charged, want %v", got, want)
		}
		return got == want
	})
}
