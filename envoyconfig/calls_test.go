package envoyconfig

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestUnknownValues covers values that do not follow from the configuration: they must be reported
// as unknown. e2e/envoyconfig compares the others with a real Envoy.
func TestUnknownValues(t *testing.T) {
	action := func(text string) string {
		return "rate_limits: [{ actions: [" + text + "] }]\n" + toBackend
	}
	for _, tt := range []struct{ host, request, want string }{
		{action("{ extension: { name: expr, typed_config: { '@type': x/t } } }"), "http://a/", "shop: unknown: extension expr"},
		{action("{ source_cluster: {} }"), "http://a/", "shop: unknown: source_cluster: there is no node.cluster, so Envoy's flag --service-cluster may set it"},
		{action("{ remote_address: {} }"), "http://a/", "shop: unknown: remote_address: it is the address of the peer that connects to Envoy: set it with --remote ADDRESS"},
		{action("{ metadata: { descriptor_key: m, metadata_key: { key: ns, path: [{ key: a }, { key: b }] } } }"), "http://a/", "shop: not sent: no filter before the rate limit filter sets the metadata ns: add the one that does, or correct the key"},
		{action("{ metadata: { descriptor_key: m, source: cluster_entry, metadata_key: { key: ns, path: [{ key: a }] } } }"), "http://a/", "shop: unknown: metadata ns:a: source CLUSTER_ENTRY is not supported"},
		{action("{ metadata: { descriptor_key: m, source: route_entry, default_value: v, metadata_key: { key: ns, path: [{ key: a }] } } }"), "http://a/", "shop: (m, v)"},
		{action("{ request_headers: { header_name: x-request-id, descriptor_key: id } }"), "http://a/", "shop: unknown: request_headers x-request-id: Envoy sets it"},
		{action("{ remote_address_match: { descriptor_value: '%REQ(x)%', address_matcher: { invert_match: true } } }"), "http://a/", "shop: unknown: remote_address_match: it is the address of the peer that connects to Envoy: set it with --remote ADDRESS"},
		{action("{ header_value_match: { descriptor_value: v, headers: [{ name: x, string_match: { custom: {} } }] } }"), "http://a/", "shop: unknown: header_value_match: a matcher that sluice does not support"},
		// An action without an entry suppresses the descriptor, even if another action is unknown.
		{action("{ extension: { name: expr, typed_config: { '@type': x/t } } }, { request_headers: { header_name: x-no, descriptor_key: none } }"), "http://a/", `shop: not sent: no header "x-no"`},
		{"routes: [{ match: { prefix: /, runtime_fraction: { default_value: { numerator: 50 } } }, route: { cluster: b } }]", "http://a/", "nothing: unknown: runtime_fraction, in the route at envoy.yaml:19:26"},
		{"routes: [{ match: { path_match_policy: {} }, route: { cluster: b } }]", "http://a/", "nothing: unknown: match: a path matcher that sluice does not support, in the route at envoy.yaml:19:26"},
		{"routes: [{ match: { prefix: /, headers: [{ name: x, safe_regex_match: { regex: '\\C' } }] }, route: { cluster: b } }]", "http://a/", `nothing: unknown: the regular expression "\\C", in the route at envoy.yaml:19:26`},
		{"matcher: {}", "http://a/", "nothing: unknown: matcher: a matcher tree at envoy.yaml:19:26"},
		{"require_tls: ALL\n" + action("{ generic_key: { descriptor_value: v } }"), "http://a/", "nothing: require_tls is ALL: Envoy redirects to https without calling the service"},
		{"require_tls: ALL\n" + action("{ generic_key: { descriptor_value: v } }"), "https://a/", "shop: (generic_key, v)"},
	} {
		if got := callsText(t, proxy(t, tt.host), tt.request, "x: 1"); got != tt.want {
			t.Errorf("%s: calls are %s\nwant %s", tt.host, got, tt.want)
		}
	}
}

func TestFiltersThatMayNotCall(t *testing.T) {
	const host = "rate_limits: [{ actions: [{ generic_key: { descriptor_value: v } }] }]\n" + toBackend
	for filter, want := range map[string]string{
		"request_type: internal":                               "shop: nothing: request_type is internal, but the request is external",
		"request_type: external":                               "shop: (generic_key, v)",
		"request_type: both":                                   "shop: (generic_key, v)",
		"filter_enabled: { default_value: { numerator: 50 } }": "shop: nothing: unknown: filter_enabled, at envoy.yaml:12:33",
		"filter_enabled: { default_value: { numerator: 100 }, runtime_key: a }":              "shop: nothing: unknown: filter_enabled, at envoy.yaml:12:33",
		"filter_enabled: { default_value: { numerator: 1000000, denominator: MILLION } }":    "shop: (generic_key, v)",
		"filter_enabled: { default_value: { numerator: 10000, denominator: TEN_THOUSAND } }": "shop: (generic_key, v)",
		"stage: 1": "shop: nothing: no rate_limits apply here",
	} {
		if got := callsText(t, proxy(t, host, filter), "http://a/"); got != want {
			t.Errorf("%s: calls are %s\nwant %s", filter, got, want)
		}
	}
}

// TestRewrittenPaths checks that a path is computed only if the connection manager leaves it
// unchanged.
func TestRewrittenPaths(t *testing.T) {
	text := strings.Replace(listenerText, "          http_filters:", "          normalize_path: true\n          merge_slashes: true\n          path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT\n          http_filters:", 1)
	text = strings.Replace(text, "x-user", `":path"`, 1)
	c, err := Read([]File{{"envoy.yaml", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/a/b.c/~d?x=/../": "shop: (user, /a/b.c/~d?x=/../)",
		"/a//b":            "nothing: unknown: path: merge_slashes changes this path, in the route at envoy.yaml:23:26",
		"/a/../b":          "nothing: unknown: path: normalize_path changes this path, in the route at envoy.yaml:23:26",
		"/a/.":             "nothing: unknown: path: normalize_path changes this path, in the route at envoy.yaml:23:26",
		"/%41":             "nothing: unknown: path: normalize_path changes this path, in the route at envoy.yaml:23:26",
		"/a%2fb":           "nothing: unknown: path: path_with_escaped_slashes_action changes this path, in the route at envoy.yaml:23:26",
		"/a%5Cb":           "nothing: unknown: path: path_with_escaped_slashes_action changes this path, in the route at envoy.yaml:23:26",
	} {
		if got := callsText(t, c, "http://a"+path); got != want {
			t.Errorf("%s: calls are %s\nwant %s", path, got, want)
		}
	}
}

func TestParseRequest(t *testing.T) {
	for line, want := range map[string]Request{
		"GET https://shop.example/search?q=1": {Method: "GET", Scheme: "https", Authority: "shop.example", Path: "/search?q=1"},
		"POST http://[::1]:80":                {Method: "POST", Scheme: "http", Authority: "[::1]:80", Path: "/"},
		"http://a?b":                          {Method: "GET", Scheme: "http", Authority: "a", Path: "/?b"},
	} {
		got, err := ParseRequest(line)
		if err != nil || got.Method != want.Method || got.Scheme != want.Scheme || got.Authority != want.Authority || got.Path != want.Path {
			t.Errorf("ParseRequest(%q) = %+v, %v, want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "/search", "GET shop.example/", "ftp://a/", "GET http://", " http://a/", "GET http://a/ HTTP/1.1", "http://a/#b", "http://a/\n"} {
		if _, err := ParseRequest(line); err == nil || !strings.Contains(err.Error(), "write 'GET https://") {
			t.Errorf("ParseRequest(%q) = %v, want an error with the expected format", line, err)
		}
	}
	for _, line := range []string{"", "x", ": v", "a b: c"} {
		if _, err := ParseHeader(line); err == nil {
			t.Errorf("ParseHeader(%q) = nil, want an error", line)
		}
	}
}

// TestSeveralListeners checks that Request.Listener is required if several listeners have a rate
// limit filter.
func TestSeveralListeners(t *testing.T) {
	other := strings.Replace(strings.Replace(listenerText, "name: ingress", "name: other", 1), "domain: shop", "domain: depot", 1)
	c, err := Read([]File{{"a.yaml", []byte(listenerText)}, {"b.yaml", []byte(other)}})
	if err != nil {
		t.Fatal(err)
	}
	request := Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/", Remote: netip.MustParseAddr("192.0.2.1")}
	for name, want := range map[string]string{
		"":      "several listeners have a rate limit filter: select one with --listener: ingress, other",
		"third": `these files contain no listener "third" with an HTTP rate limit filter`,
	} {
		request.Listener = name
		if _, err := c.Calls(request); err == nil || err.Error() != want {
			t.Errorf("Calls with listener %q = %v, want %s", name, err, want)
		}
	}
	request.Listener = "other"
	if a, err := c.Calls(request); err != nil || a.ByFilter[0].Domain != "depot" {
		t.Errorf("Calls with listener other = %+v, %v, want a call with domain depot", a, err)
	}
}

// TestNetworkFilterCalls covers network filters, which call the service when a connection starts,
// with and without an HTTP filter.
func TestNetworkFilterCalls(t *testing.T) {
	const network = `{ name: edge, typed_config: { "@type": x/envoy.extensions.filters.network.ratelimit.v3.RateLimit, stat_prefix: s, domain: edge, descriptors: [{ entries: [{ key: port, value: "443" }] }, ` +
		`{ entries: [{ key: from, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" }] }] } }`
	both := strings.Replace(listenerText, "  - filters:\n", "  - filters:\n      - "+network+"\n", 1)
	for name, tt := range map[string]struct{ text, want string }{
		"both":          {both, "edge (port, 443) (from, ?) calls 1 "},
		"alone":         {strings.Replace(both, "envoy.extensions.filters.http.ratelimit.v3.RateLimit", "acme.Filter", 1), "edge (port, 443) (from, ?) calls 0 " + OnlyNetworkFilters},
		"without hosts": {"filter_chains: [{ filters: [" + network + "] }]", `f:1:57: only a network filter calls the service, when a connection starts: explain its descriptors with --domain and --descriptor`},
	} {
		c, err := Read([]File{{"f", []byte(tt.text)}})
		if err != nil {
			t.Fatal(name, err)
		}
		got := ""
		if calls, err := c.Calls(Request{Path: "/"}); err != nil {
			got = err.Error()
		} else if len(calls.ByConnection) == 1 {
			call := &calls.ByConnection[0]
			got = fmt.Sprintf("%s %s %s calls %d %s", call.Domain, &call.Descriptors[0], &call.Descriptors[1], len(calls.ByFilter), calls.NotCalled)
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

// TestLeaseOfOwnNamespace covers a filter whose replies have a namespace of their own in the metadata.
func TestLeaseOfOwnNamespace(t *testing.T) {
	for namespace, want := range map[string]bool{"mine": true, filterNamespace: false} {
		end := withEnd(user, "%DYNAMIC_METADATA("+namespace+":streams)%")
		c := proxy(t, toBackend, "metadata_namespace: mine\n                rate_limits: ["+end+"]")
		calls, err := c.Calls(Request{Authority: "a", Path: "/", Headers: []Header{{"x-user", "al"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := calls.ByFilter[0].Descriptors[0].Lease; got != want {
			t.Errorf("hits in %s: Lease is %v, want %v", namespace, got, want)
		}
	}
}
