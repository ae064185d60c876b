package envoyconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const userPolicy = "[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]"

// TestCheckListeners covers a listener without a rate limit filter next to one that has it.
func TestCheckListeners(t *testing.T) {
	const rules = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}"
	manager := func(name, filters, routes string) string {
		return `
- name: ` + name + `
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        http_filters: [` + filters + `{ name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]
        route_config: { virtual_hosts: [{ name: all, domains: ["*"], ` + routes + ` }] }`
	}
	const filter = `{ name: limit, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop, timeout: 0.25s,
          rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } } } }, `
	const limited = "rate_limits: " + userPolicy + ", routes: [{ match: { prefix: / }, route: { cluster: backend } }]"
	const plain = "routes: [{ match: { prefix: / }, route: { cluster: backend } }]"
	perRoute := func(name string) string {
		return `typed_per_filter_config: { ` + name + `: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: INCLUDE } }, ` + limited
	}
	for name, tt := range map[string]struct {
		listeners string
		want      []string
	}{
		"both have it":         {listeners: manager("http", filter, limited) + manager("https", filter, limited)},
		"another that is open": {listeners: manager("http", filter, limited) + manager("admin", "", plain)},
		"a filter that comes by discovery": {
			listeners: manager("http", filter, limited) + manager("https", "{ name: limit, config_discovery: { config_source: { ads: {} }, type_urls: [x/y.Z] } }, ", limited),
		},
		"the same routes": {
			listeners: manager("http", filter, limited) + manager("https", "", limited),
			want: []string{`envoy.yaml:17:11: error: no-effect: listener https has no rate limit filter, but listener http has one and the same routes: add the filter to http_filters, ` +
				`because requests to this listener are not limited`},
		},
		"other routes with limits": {
			listeners: manager("http", filter, limited) + manager("https", "", strings.Replace(limited, "prefix: /", "prefix: /x", 1)),
			want: []string{`envoy.yaml:17:11: error: no-effect: listener https has no rate limit filter, so no filter sends the rate_limits of its routes, at envoy.yaml:19:86: ` +
				`add one to http_filters`},
		},
		"limits of a local filter": {
			listeners: manager("http", filter, limited) + manager("https",
				`{ name: local, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit } }, `,
				strings.Replace(limited, "prefix: /", "prefix: /x", 1)),
		},
		"a name that the filter has": {listeners: manager("http", filter, perRoute("limit"))},
		"a name that no filter has": {
			listeners: manager("http", filter, perRoute("ratelimit")),
			want: []string{`envoy.yaml:11:110: error: no-effect: no rate limit filter has the name "ratelimit", so this configuration has no effect: ` +
				`use the name of the filter in http_filters, here limit`},
		},
	} {
		c, err := Read([]File{{"envoy.yaml", []byte("static_resources:\n  listeners:\n  " + indent(tt.listeners, "  "))}})
		if err != nil {
			t.Fatal(name, err)
		}
		var got []string
		for _, f := range c.Check(ruleSet(t, rules)) {
			got = append(got, f.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCheckFilterFields covers fields that make a filter limit less than expected.
func TestCheckFilterFields(t *testing.T) {
	const host = "rate_limits: " + userPolicy + "\n" + toBackend
	for field, want := range map[string]string{
		"filter_enforced: { default_value: { numerator: 0 } }":                 "warning: no-effect: filter_enforced is 0 %",
		"filter_enforced: { default_value: { numerator: 0 }, runtime_key: k }": "warning: no-effect: filter_enforced is 0 % unless the runtime changes k",
		"filter_enforced: { default_value: { numerator: 1 } }":                 "warning: no-effect: filter_enforced is 1 %",
		"filter_enforced: { default_value: { numerator: 2 } }":                 "",
		"request_type: internal":                                               "error: no-effect: request_type is internal",
		"request_type: both":                                                   "",
		"timeout: 0.004s":                                                      "warning: timeout: the filter waits 4ms",
		"timeout: 0.005s":                                                      "",
		"timeout: 0s":                                                          "", // no timeout
	} {
		fields := []string{"timeout: 0.25s", field}
		if strings.HasPrefix(field, "timeout") {
			fields = fields[1:]
		}
		var got []string
		for _, f := range proxy(t, host, fields...).Check(ruleSet(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}")) {
			got = append(got, f.String())
		}
		if all := strings.Join(got, "\n"); want == "" && all != "" || want != "" && (len(got) != 1 || !strings.Contains(all, want)) {
			t.Errorf("%s: found %q, want %q", field, got, want)
		}
	}
}

// TestCheckUnreachableRoutes covers routes that no request reaches.
func TestCheckUnreachableRoutes(t *testing.T) {
	for first, never := range map[string]bool{
		"{ prefix: / }":                                  true,
		"{ prefix: /, case_sensitive: false }":           true,
		"{ prefix: /a }":                                 false,
		"{ path: / }":                                    false,
		"{ prefix: /, headers: [{ name: x }] }":          false,
		"{ prefix: /, query_parameters: [{ name: x }] }": false,
		"{ prefix: /, grpc: {} }":                        false,
		"{ prefix: /, runtime_fraction: { default_value: { numerator: 1 } } }": false,
	} {
		host := "routes:\n- { match: " + first + ", route: { cluster: backend } }\n- { match: { prefix: /x }, route: { cluster: backend, rate_limits: " + userPolicy + " } }\n"
		var found []string
		for _, f := range proxy(t, host, "timeout: 0.25s").Check(ruleSet(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}")) {
			found = append(found, f.String())
		}
		if got := strings.Contains(strings.Join(found, " "), "no request reaches the route, because the route at envoy.yaml:"); got != never {
			t.Errorf("after %s: found %q", first, found)
		}
	}
}
