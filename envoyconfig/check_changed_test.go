package envoyconfig

import (
	"strings"
	"testing"
)

// TestCheckChanged covers routes that change the headers of an end-of-stream descriptor.
// TestRoutesThatChangeDescriptors of e2e/concurrency compares this with a real Envoy.
func TestCheckChanged(t *testing.T) {
	const route = "{ match: { prefix: / }, route: { cluster: backend } }"
	header := func(name string) string {
		return "{ actions: [{ request_headers: { header_name: \"" + name + "\", descriptor_key: user } }] }"
	}
	match := "{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: x, headers: [{ name: X-User, present_match: true }] } }] }"
	for name, tt := range map[string]struct {
		element, route, host string
		want                 bool
	}{
		"nothing":                     {header("x-user"), route, "", false},
		"removed":                     {header("x-user"), strings.TrimSuffix(route, " }") + ", request_headers_to_remove: [x-a, X-User] }", "", true},
		"removed by the host":         {header("X-User"), route, "request_headers_to_remove: [x-user]", true},
		"another is removed":          {header("x-user"), route, "request_headers_to_remove: [x-user-agent]", false},
		"matched and removed":         {match, route, "request_headers_to_remove: [x-user]", true},
		"overwritten":                 {header("x-user"), route, "request_headers_to_add: [{ header: { key: x-user, value: a }, append_action: OVERWRITE_IF_EXISTS }]", true},
		"overwritten by append false": {header("x-user"), route, "request_headers_to_add: [{ header: { key: x-user, value: a }, append: false }]", true},
		"appended to":                 {header("x-user"), route, "request_headers_to_add: [{ header: { key: x-user, value: a } }]", false},
		"the path":                    {header(":path"), strings.Replace(route, "backend }", "backend, prefix_rewrite: /v1 }", 1), "", true},
		"the path but not the header": {header("x-user"), strings.Replace(route, "backend }", "backend, prefix_rewrite: /v1 }", 1), "", false},
		"the host":                    {header(":authority"), strings.Replace(route, "backend }", "backend, host_rewrite_literal: a }", 1), "", true},
		"auto_host_rewrite: false":    {header(":authority"), strings.Replace(route, "backend }", "backend, auto_host_rewrite: false }", 1), "", false},
	} {
		host := "routes: [" + tt.route + "]\n" + tt.host + "\ntyped_per_filter_config:\n  limit:\n    \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute\n" +
			"    rate_limits: [" + tt.element + ", " + withEnd(tt.element, lease("streams")) + "]\n"
		found := 0
		for _, f := range proxy(t, host).Check(ruleSet(t, leaseRules)) {
			if f.Code == Changed {
				found++
				if !strings.Contains(f.Message, "before the stream ends") {
					t.Errorf("%s: %v", name, f)
				}
			}
		}
		if (found == 1) != tt.want || found > 1 {
			t.Errorf("%s: %d findings, want one: %v", name, found, tt.want)
		}
	}
}
