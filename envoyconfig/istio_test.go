package envoyconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const envoyFilters = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
spec:
  configPatches:
    - applyTo: HTTP_FILTER
      patch:
        operation: INSERT_BEFORE
        value:
          name: limit
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
            domain: shop
            timeout: 1s
            rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: outbound|8081||sluice } } }
    - { applyTo: HTTP_FILTER, patch: { operation: REMOVE } }
    - { applyTo: CLUSTER, patch: { operation: ADD, value: { name: other } } }
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
spec:
  configPatches:
    - applyTo: VIRTUAL_HOST
      match: { routeConfiguration: { vhost: { name: "shop:80" } } }
      patch: { value: { rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }] }, operation: MERGE }
    - applyTo: HTTP_ROUTE
      match: { routeConfiguration: { vhost: { name: "shop:80", route: { name: reports } } } }
      patch: { value: { route: { rate_limits: [{ actions: [{ generic_key: { descriptor_value: x } }] }] } }, operation: MERGE }
`

func TestIstio(t *testing.T) {
	const note = "i.yaml:1:1: note: unknown: these files are excerpts of a configuration, merged as istiod merges them; to check the complete configuration, with clusters and routes from other sources, pass the output of the proxy's /config_dump"
	const unmatched = `i.yaml:27:48: error: unmatched: no rule of domain "shop" can match (generic_key, x): nothing matches entry 1, generic_key=x: the rules begin with user (rules.yaml:2:15)` +
		"; without descriptor_key the key of generic_key is generic_key: add descriptor_key, or use this key in the rule"
	_, descriptorsOnly, _ := strings.Cut(envoyFilters, "---\n")
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"all parts": {envoyFilters, []string{
			note,
			"i.yaml:24:39: note: no-effect: 1 of 2 routes do not send this descriptor; the first, at i.yaml:27:23: the route has its own rate_limits; with vh_rate_limits: INCLUDE it sends these, too",
			"i.yaml:27:47: warning: no-effect: the route has its own rate_limits and therefore does not send those of its virtual host: " +
				"to send both, set include_vh_rate_limits: true next to its rate_limits, or vh_rate_limits: INCLUDE; if this is intended, set vh_rate_limits: OVERRIDE",
			unmatched,
		}},
		"a route that includes its host's": {strings.Replace(envoyFilters, "route: { rate_limits", "route: { include_vh_rate_limits: true, rate_limits", 1), []string{note, strings.Replace(unmatched, "27:48", "27:78", 1)}},
		"a filter after the router": {strings.Replace(envoyFilters, "INSERT_BEFORE", "ADD", 1), []string{
			"i.yaml:9:11: error: no-effect: the filter is after the router, which ends the chain, so it never runs: put it before the router",
		}},
		"a filter from elsewhere": {descriptorsOnly, []string{
			"i.yaml:1:1: warning: unknown: no file contains a rate limit filter, so nothing is checked: also pass its listener, or the output of /config_dump",
		}},
		"a stage without a filter": {strings.Replace(envoyFilters, "timeout: 1s", "stage: 1", 1), []string{
			note,
			"i.yaml:9:11: warning: timeout: the filter has no timeout and waits 20 ms, too short for a busy node, and then continues without a response: set timeout: 0.25s",
			"i.yaml:24:39: warning: no-effect: no route sends this descriptor: no filter has its stage, 0 (route i.yaml:24:23)",
			"i.yaml:27:48: warning: no-effect: no route sends this descriptor: no filter has its stage, 0 (route i.yaml:27:23)",
		}},
	} {
		c, err := Read([]File{{"i.yaml", []byte(tt.text)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, findingsOf(t, c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if text := callsText(t, c, "http://shop/"); !strings.HasPrefix(text, "error: ") {
			t.Errorf("%s: calls are %s, want an error, because the route is unknown", name, text)
		}
	}
}

// TestIstioList reads a list of EnvoyFilters as kubectl prints it.
func TestIstioList(t *testing.T) {
	first, second, _ := strings.Cut(envoyFilters, "---\n")
	c, err := Read([]File{{"i.yaml", []byte("kind: List\nitems:\n- " + indent(first, "  ") + "\n- " + indent(second, "  ") + "\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := findingsOf(t, c); len(got) != 4 {
		t.Errorf("found %q, want the four findings of the same objects in separate documents", got)
	}
}

func findingsOf(t *testing.T, c *Config) []string {
	t.Helper()
	var got []string
	for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")) {
		got = append(got, f.String())
	}
	return got
}
