package envoyconfig

import (
	"strings"
	"testing"
)

// TestValuesThatEnvoyNeverSends covers rules with values that a descriptor never has.
func TestValuesThatEnvoyNeverSends(t *testing.T) {
	for rule, tt := range map[string]struct{ action, want string }{
		"key: method, value: get":                      {"request_headers: { header_name: ':method', descriptor_key: method }", "methods are in upper case"},
		"key: method, value: GET":                      {"request_headers: { header_name: ':method', descriptor_key: method }", ""},
		"key: path, value: api/*":                      {"request_headers: { header_name: ':path', descriptor_key: path }", "a path begins with /"},
		"key: path, value: '*/a'":                      {"request_headers: { header_name: ':path', descriptor_key: path }", ""},
		"key: a, value: 192.0.2.0/24":                  {"remote_address: {}", ""},
		"key: a, cidr: [192.0.2.0/24]":                 {"remote_address: {}", ""},
		"key: remote_address, value: 192.0.2.0/24":     {"remote_address: {}", "remote_address is an address without a length: use cidr"},
		"key: masked_remote_address, value: 192.0.2.1": {"masked_remote_address: {}", "the value of masked_remote_address ends with the length of its network"},
		"key: masked_remote_address, value: 192.0.2.*": {"masked_remote_address: {}", ""},
	} {
		c := proxy(t, "rate_limits: [{ actions: [{ "+tt.action+" }] }]\n"+toBackend, "timeout: 1s")
		var all []string
		for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ "+rule+", rate_limit: { unit: hour, requests_per_unit: 60 } }]\n")) {
			all = append(all, f.String())
		}
		found := strings.Join(all, "\n")
		if has := strings.Contains(found, ": error: no-effect: no request has the value "); has != (tt.want != "") || !strings.Contains(found, tt.want) {
			t.Errorf("%s: found %s\nwant %s", rule, found, tt.want)
		}
	}
}

// TestFilterChainsThatAreNeverUsed covers filter chains that take no connection.
func TestFilterChainsThatAreNeverUsed(t *testing.T) {
	withChain := func(change func(string) string) string {
		listener := strings.Replace(listenerText[1:], "domain: shop\n", "domain: shop\n                timeout: 1s\n", 1)
		return change(listener) + "address: { socket_address: { address: 127.0.0.1, port_value: 1 } }\n"
	}
	for name, tt := range map[string]struct{ text, want string }{
		"used": {withChain(func(s string) string { return s }), ""},
		"default": {withChain(func(s string) string {
			return strings.Replace(s, "filter_chains:\n  - filters:", "filter_chains: [{}]\ndefault_filter_chain:\n    filters:", 1)
		}), "the filter chain at envoy.yaml:2:17 takes all connections, so none uses default_filter_chain"},
		"default of a matcher": {withChain(func(s string) string {
			return "filter_chain_matcher: {}\n" + strings.Replace(s, "filter_chains:\n  - filters:", "filter_chains: [{}]\ndefault_filter_chain:\n    filters:", 1)
		}), ""},
		"server names": {withChain(func(s string) string {
			return strings.Replace(s, "  - filters:", "  - filter_chain_match: { server_names: [a] }\n    filters:", 1)
		}), "the listener has no tls_inspector in listener_filters"},
		"server names of TLS": {withChain(func(s string) string {
			return "listener_filters: [{ name: tls_inspector }]\n" + strings.Replace(s, "  - filters:", "  - filter_chain_match: { server_names: [a] }\n    filters:", 1)
		}), ""},
	} {
		c, err := Read([]File{{"envoy.yaml", []byte(tt.text)}})
		if err != nil {
			t.Fatal(name, err)
		}
		found := strings.Join(findingsOf(t, c), "\n")
		if has := strings.Contains(found, ": error: no-effect: no route sends this descriptor: "); has != (tt.want != "") || !strings.Contains(found, tt.want) {
			t.Errorf("%s: found %s\nwant %s", name, found, tt.want)
		}
	}
}

// TestValuesThatARuleNeeds covers a rule with a value at each level.
func TestValuesThatARuleNeeds(t *testing.T) {
	c := proxy(t, "rate_limits: [{ actions: [{ request_headers: { header_name: x-tenant, descriptor_key: tenant } }, "+
		"{ request_headers: { header_name: x-user, descriptor_key: user } }] }]\n"+toBackend, "timeout: 1s")
	_, statement := c.Verify(ruleSet(t, "domain: shop\ndescriptors: [{ key: tenant, value: acme, descriptors: ["+
		"{ key: user, value: al, rate_limit: { unit: hour, requests_per_unit: 60 } }] }]\n"))
	const want = "and whose x-tenant header is acme and whose x-user header is al"
	if got := statement.Rows[0].String(); !strings.HasSuffix(got, want) {
		t.Errorf("the statement is %s\nwant %s", got, want)
	}
}

// TestRouteOfCONNECT covers a request without a path, which no route with a path matches.
func TestRouteOfCONNECT(t *testing.T) {
	c := proxy(t, "routes: [{ name: path, match: { prefix: / }, route: { cluster: backend } }, "+
		"{ name: connect, match: { connect_matcher: {} }, route: { cluster: backend } }]\n", "timeout: 1s")
	for method, want := range map[string]string{"GET": `"path"`, "CONNECT": `"connect"`} {
		calls, err := c.Calls(Request{Method: method, Scheme: "http", Authority: "a:80", Path: "/"})
		if err != nil || calls.Route != want {
			t.Errorf("%s: the route is %s, %v, want %s", method, calls.Route, err, want)
		}
	}
}
