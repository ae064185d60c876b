package envoyconfig

import (
	"fmt"
	"strings"
	"testing"
)

// TestChargedTwice covers elements that charge one counter twice, and some that only seem to.
func TestChargedTwice(t *testing.T) {
	const user = "{ request_headers: { header_name: x-user, descriptor_key: user } }"
	fixed := func(value string) string {
		return "{ generic_key: { descriptor_key: user, descriptor_value: " + value + " } }"
	}
	matching := func(header string) string {
		return "{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: " + header + " }] } }"
	}
	mask := func(bits int) string {
		return fmt.Sprintf("{ masked_remote_address: { v4_prefix_mask_len: %d } }", bits)
	}
	metadata := "{ metadata: { descriptor_key: user, metadata_key: { key: ns, path: [{ key: user }] } } }"
	set := "{ name: set, typed_config: { '@type': x/envoy.extensions.filters.http.set_metadata.v3.Config, metadata: [{ metadata_namespace: ns, value: { user: a } }] } }"
	const limit = "rate_limit: { unit: hour, requests_per_unit: 60"
	const ofUser = "{ key: user, " + limit + " } }"
	for name, tt := range map[string]struct{ first, second, before, rules, want string }{
		"two names of the authority": {first: strings.Replace(user, "x-user", "host", 1), second: strings.Replace(user, "x-user", "':authority'", 1), rules: ofUser, want: "warning: charged-twice: each request charges the counter of user=<:authority header> twice, since the element at envoy.yaml:18:31 charges the same counter"},
		"an expression of a header":  {first: user, second: `{ extension: { name: e, typed_config: { '@type': x/` + expression + `, descriptor_key: user, text: "request.headers['x-user']" } } }`, rules: ofUser, want: "warning: charged-twice"},
		"constant metadata":          {first: fixed("a"), second: metadata, before: set, rules: ofUser, want: "warning: charged-twice"},
		"other constant metadata":    {first: fixed("b"), second: metadata, before: set, rules: ofUser},
		"shared values":              {first: fixed("bot-1"), second: fixed("bot-2"), rules: "{ key: user, value: bot-*, share_threshold: true, " + limit + " } }", want: "warning: charged-twice"},
		"values with own counters":   {first: fixed("bot-1"), second: fixed("bot-2"), rules: "{ key: user, value: bot-*, " + limit + " } }"},
		"a shared counter":           {first: user, second: fixed("all"), rules: "{ key: user, value: all, " + limit + ", counter: pool } }, { key: user, " + limit + ", counter: pool } }", want: "warning: charged-twice"},
		"a counter of one value":     {first: user, second: fixed("all"), rules: "{ key: user, value: all, " + limit + ", counter: pool } }, " + ofUser},
		"a counter of either key": {
			first: user, second: "{ request_headers: { header_name: x-api-key, descriptor_key: apikey } }",
			rules: "{ key: user, " + limit + ", counter: pool } }, { key: apikey, " + limit + ", counter: pool } }",
		},
		"two masks":              {first: mask(16), second: mask(24), rules: "{ key: masked_remote_address, " + limit + " } }"},
		"two headers that match": {first: matching("a"), second: matching("b"), rules: ofUser},
		"the same match":         {first: matching("a"), second: matching("a"), rules: ofUser, want: "warning: charged-twice"},
		"an entry that may be absent": {
			first: user, second: user + ", { request_headers: { header_name: x-plan, descriptor_key: plan, skip_if_absent: true } }",
			rules: "{ key: user, " + limit + " }, descriptors: [{ key: plan, " + limit + " } }] }", want: "warning: charged-twice: requests without plan charge the counter of user=<x-user header> twice",
		},
	} {
		text := hostOf("rate_limits: [{ actions: [" + tt.first + "] }, { actions: [" + tt.second + "] }]\n" + toBackend)
		if tt.before != "" {
			text = strings.Replace(text, "http_filters:\n", "http_filters:\n            - "+tt.before+"\n", 1)
		}
		checkCharges(t, name, text, tt.rules, tt.want)
	}
	for name, hits := range map[string]string{
		"no hits": "hits_addend: { number: 0 }", "a cost": "apply_on_stream_done: true, hits_addend: { format: '%BYTES_SENT%' }",
	} {
		second := "{ actions: [" + user + ", { request_headers: { header_name: x-plan, descriptor_key: plan, skip_if_absent: true } }], " + hits + " }"
		text := strings.Replace(hostOf(toBackend), "domain: shop\n", "domain: shop\n                rate_limits: [{ actions: ["+user+"] }, "+second+"]\n", 1)
		checkCharges(t, name+" without an entry", text, "{ key: user, "+limit+" }, descriptors: [{ key: plan, "+limit+" } }] }", "")
	}
	const network = "{ typed_config: { '@type': x/envoy.extensions.filters.network.ratelimit.v3.RateLimit, stat_prefix: s, domain: shop, timeout: 1s, descriptors: [{ entries: [{ key: user, value: a }] }], rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice } } } } }"
	checkCharges(t, "two network filters", "filter_chains: [{ filters: ["+network+", "+network+"] }]", ofUser, "warning: charged-twice: each connection charges the counter of (user, a) twice")
	checkCharges(t, "two filter chains", "filter_chains: [{ filters: ["+network+"] }, { filters: ["+network+"] }]", ofUser, "")
}

// TestChargedBehind covers listeners that other listeners lead to.
func TestChargedBehind(t *testing.T) {
	const limiter = "{ name: a, typed_config: { '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop, timeout: 1s } }"
	listener := func(address, filters, route string) string {
		return "{ address: " + address + ", filter_chains: [{ filters: [{ typed_config: { '@type': x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, http_filters: [" + filters + "], " +
			"route_config: { virtual_hosts: [{ name: v, domains: ['*'], routes: [{ match: { prefix: / }, route: { " + route + ", rate_limits: " + userPolicy + " } }] }] } } }] }] }"
	}
	proxy := func(address, to string) string {
		return "{ address: " + address + ", filter_chains: [{ filters: [{ typed_config: { '@type': x/" + tcpProxy + ", cluster: " + to + " } }] }] }"
	}
	cluster := func(name, address string) string {
		return "{ name: " + name + ", load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: { address: " + address + " } }] }] } }"
	}
	port := func(host string, n int) string {
		return fmt.Sprintf("{ socket_address: { address: %s, port_value: %d } }", host, n)
	}
	outer := port("0.0.0.0", 1)
	inner := port("0.0.0.0", 2)
	toInner := cluster("in", port("127.0.0.1", 2))
	const pipe = "{ pipe: { path: /a } }"
	third := listener(port("0.0.0.0", 3), limiter, "cluster: out")
	toThird := cluster("third", port("127.0.0.1", 3))
	const weights = "weighted_clusters: { clusters: [{ name: in, weight: 1 }] }"
	for name, tt := range map[string]struct{ listeners, clusters string }{
		"weights of a TCP proxy": {strings.Replace(proxy(outer, "in"), "cluster: in", weights, 1) + "," + listener(inner, limiter, "cluster: third") + "," + third, toInner + "," + toThird},
		"weights":                {listener(outer, limiter, "weighted_clusters: { clusters: [{ name: in }] }") + "," + listener(inner, limiter, "cluster: out"), toInner},
		"copies":                 {listener(outer, limiter, "cluster: out, request_mirror_policies: [{ cluster: in }]") + "," + listener(inner, limiter, "cluster: out"), toInner},
		"a name":                 {listener(outer, limiter, "cluster: in") + "," + listener(inner, limiter, "cluster: out"), cluster("in", port("localhost", 2))},
		"a pipe":                 {listener(outer, limiter, "cluster: in") + "," + listener(pipe, limiter, "cluster: out"), cluster("in", pipe)},
		"two behind one":         {listener(outer, "", "cluster: in") + "," + listener(inner, limiter, "cluster: third") + "," + listener(port("0.0.0.0", 3), limiter, "cluster: out"), toInner + "," + cluster("third", port("127.0.0.1", 3))},
		"one between":            {listener(outer, limiter, "cluster: in") + "," + listener(inner, "", "cluster: third") + "," + listener(port("0.0.0.0", 3), limiter, "cluster: out"), toInner + "," + cluster("third", port("127.0.0.1", 3))},
		"a TCP proxy":            {listener(outer, limiter, "cluster: in") + "," + proxy(inner, "third") + "," + listener(port("0.0.0.0", 3), limiter, "cluster: out"), toInner + "," + cluster("third", port("127.0.0.1", 3))},
		"an aggregate":           {listener(outer, limiter, "cluster: all") + "," + listener(inner, limiter, "cluster: out"), toInner + ", { name: all, cluster_type: { name: a, typed_config: { '@type': x/a, clusters: [in] } } }"},
	} {
		checkCharges(t, name, "static_resources: { listeners: ["+tt.listeners+"], clusters: ["+tt.clusters+"] }", "{ key: user, rate_limit: { unit: hour, requests_per_unit: 60 } }", "warning: charged-twice")
	}
	twoRoutes := strings.Replace(listener(inner, "", "cluster: out"), "routes: [", "routes: [{ match: { path: /a }, route: { cluster: third } }, ", 1)
	for name, listeners := range map[string]string{
		"no weight":   listener(outer, limiter, "weighted_clusters: { clusters: [{ name: in, weight: 0 }] }") + "," + listener(inner, limiter, "cluster: out"),
		"no copies":   listener(outer, limiter, "cluster: out, request_mirror_policies: [{ cluster: in, runtime_fraction: { default_value: { numerator: 0 } } }]") + "," + listener(inner, limiter, "cluster: out"),
		"other paths": listener(outer, limiter, "cluster: in") + "," + twoRoutes + "," + third,
	} {
		checkCharges(t, name, "static_resources: { listeners: ["+listeners+"], clusters: ["+toInner+","+toThird+"] }", "{ key: user, rate_limit: { unit: hour, requests_per_unit: 60 } }", "")
	}
}

func checkCharges(t *testing.T, name, envoy, rules, want string) {
	t.Helper()
	c, err := Read([]File{{"envoy.yaml", []byte(envoy)}})
	if err != nil {
		t.Fatal(name, err)
	}
	var all []string
	for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: ["+rules+"]\n")) {
		if f.Code == ChargedTwice {
			all = append(all, f.String())
		}
	}
	found := strings.Join(all, "\n")
	if want == "" && found != "" || !strings.Contains(found, want) {
		t.Errorf("%s: found %q, want %q", name, found, want)
	}
}
