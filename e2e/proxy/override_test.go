package proxy_test

import (
	"net/http"
	"testing"
)

// startOverrides has routes that send a limit: a fixed one, or one from dynamic metadata, as set by
// a filter that knows the customer's plan.
var startOverrides = share("overrides", `
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: year, unit_multiplier: 2, requests_per_unit: 5 } }
  - { key: tenyears, rate_limit: { unit: year, unit_multiplier: 10, requests_per_unit: 7 } }
`, listener{
	before: `
- name: envoy.filters.http.set_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
    metadata:
      - metadata_namespace: plans
        value: { gold: { requests_per_unit: 2, unit: YEAR } }
`,
	routes: `
- match: { path: /configured }
  route: { rate_limits: ` + byUser + ` }
- match: { path: /metadata }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
        limit: { dynamic_metadata: { metadata_key: { key: plans, path: [{ key: gold }] } } }
- match: { path: /missing }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
        limit: { dynamic_metadata: { metadata_key: { key: plans, path: [{ key: none }] } } }
- match: { path: /static }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
        limit: { rate_limit: { requests_per_unit: 3, unit: MONTH } }
- match: { path: /unmatched }
  route:
    rate_limits:
      - actions: [{ generic_key: { descriptor_key: nothing, descriptor_value: matches } }]
        limit: { rate_limit: { requests_per_unit: 4, unit: HOUR } }
- match: { path: /tenyears }
  route:
    rate_limits:
      - actions: [{ generic_key: { descriptor_key: tenyears, descriptor_value: x } }]
`,
})

func TestLimitOverrides(t *testing.T) {
	p, _ := startOverrides(t)
	for _, tt := range []struct {
		path, limit string
		remaining   int
	}{
		{"/configured", `5, 5;w=63072000;name="per-user"`, 4},
		{"/metadata", `2, 2;w=31536000`, 1},
		{"/missing", `5, 5;w=63072000;name="per-user"`, 3},
		{"/static", `3, 3;w=2592000`, 2},
		{"/unmatched", `4, 4;w=3600`, 3},
		{"/tenyears", `7, 7;w=315360000`, 6},
		// Different windows have different counters.
		{"/configured", `5, 5;w=63072000;name="per-user"`, 2},
		{"/metadata", `2, 2;w=31536000`, 0},
	} {
		got := p.get(t, tt.path, "x-user: al")
		if got.status != http.StatusOK || got.get("X-Ratelimit-Limit") != tt.limit || got.number("X-Ratelimit-Remaining") != tt.remaining {
			t.Errorf("%s: %v, want 200 with the limit %s and %d remaining", tt.path, got, tt.limit, tt.remaining)
		}
	}
	if got := p.get(t, "/metadata", "x-user: al"); got.status != http.StatusTooManyRequests {
		t.Errorf("/metadata: status %d beyond the override, want 429", got.status)
	}
	if got := p.get(t, "/configured", "x-user: al"); got.status != http.StatusOK {
		t.Errorf("/configured: status %d after the override denied, want 200", got.status)
	}
}
