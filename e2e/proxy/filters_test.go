//go:build more

package proxy_test

import (
	"net/http"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// TestFiltersUseTheirDomains configures two filters with different stages and domains, and a route
// that overrides both domains.
func TestFiltersUseTheirDomains(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules: `
domain: edge
descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }]
---
domain: inner
descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }]
---
domain: partner
descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 1 } }]
`,
		listener: listener{
			rateLimit: []string{"{ domain: edge, stage: 0 }", "{ domain: inner, stage: 1 }"},
			routes: `
- match: { path: /both }
  route:
    rate_limits:
      - { stage: 0, actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }
      - { stage: 1, actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }
- match: { path: /edge }
  route: { rate_limits: ` + byUser + ` }
- match: { path: /partner }
  route: { rate_limits: ` + byUser + ` }
  typed_per_filter_config:
    envoy.filters.http.ratelimit: { ` + perRoute + `, domain: partner }
`,
		},
	})
	window.AwaitHour(t)
	for i, step := range []struct {
		path   string
		status int
	}{
		{"/both", http.StatusOK},
		{"/both", http.StatusOK},
		{"/both", http.StatusTooManyRequests}, // denied by inner; edge counts 3
		{"/edge", http.StatusTooManyRequests},
		{"/both", http.StatusTooManyRequests}, // denied by edge; inner is not called
		{"/partner", http.StatusOK},
		{"/partner", http.StatusTooManyRequests},
	} {
		if got := p.get(t, step.path, "x-user: al"); got.status != step.status {
			t.Errorf("step %d, %s: status %d, want %d", i+1, step.path, got.status, step.status)
		}
	}
	for domain, want := range map[string]float64{"edge": 5, "inner": 3, "partner": 2} {
		if got := metric(t, limits, "ratelimit_service_rate_limit_total_hits", `domain="`+domain+`"`); got != want {
			t.Errorf("domain %s has %v hits, want %v", domain, got, want)
		}
	}
}
