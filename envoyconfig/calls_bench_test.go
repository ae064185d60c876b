package envoyconfig

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCalls computes the calls for the last of fifty routes, each with a regular expression and its own
// rate_limits. sluice simulate --envoy does that for each line.
func BenchmarkCalls(b *testing.B) {
	var host strings.Builder
	host.WriteString("rate_limits: [{ actions: [{ remote_address: {} }] }]\nroutes:\n")
	for n := range 50 {
		fmt.Fprintf(&host, `- match: { safe_regex: { regex: "/api/v[0-9]+/service-%d/.*" }, headers: [{ name: x-user, present_match: true }] }
  route: { cluster: backend }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }, { generic_key: { descriptor_value: s%d } }] }]
`, n, n)
	}
	c := proxy(b, host.String())
	r, err := ParseRequest("http://shop.example/api/v1/service-49/items?page=2")
	if err != nil {
		b.Fatal(err)
	}
	r.Headers = []Header{{"x-user", "al"}}
	b.ReportAllocs()
	for b.Loop() {
		if a, err := c.Calls(r); err != nil || len(a.ByFilter) != 1 || len(a.ByFilter[0].Descriptors) != 1 {
			b.Fatal(a, err)
		}
	}
}
