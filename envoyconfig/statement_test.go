package envoyconfig

import (
	"strings"
	"testing"
)

// TestStatement covers configurations that limit nothing, or less than they seem to, with the finding and the statement
// of each.
func TestStatement(t *testing.T) {
	const (
		user      = "request_headers: { header_name: x-user, descriptor_key: user }"
		toTenant  = "{ name: to, typed_config: { '@type': x/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{ header: x-tenant, on_header_present: { metadata_namespace: ns, key: tenant } }] } }"
		setNumber = "{ name: to, typed_config: { '@type': x/envoy.extensions.filters.http.set_metadata.v3.Config, metadata: [{ metadata_namespace: ns, value: { tenant: 5, nested: { tenant: a } } }] } }"
		second    = "{ name: second, typed_config: { '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop, timeout: 1s } }"
		tokens    = "{ name: jwt, typed_config: { '@type': x/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication, providers: { p: { payload_in_metadata: payload } }, rules: [{ match: { prefix: /admin }, requires: { provider_name: p } }] } }"
		subject   = "[{ actions: [{ metadata: { descriptor_key: user, metadata_key: { key: envoy.filters.http.jwt_authn, path: [{ key: payload }, { key: sub }] } } }] }]"
		rule      = " -> rule user (60/hour): "
	)
	cel := func(text string) string {
		return "rate_limits: [{ actions: [{ extension: { name: e, typed_config: { '@type': x/" + expression + ", descriptor_key: user, text: \"" + text + "\" } } }] }]"
	}
	mutation := func(all string) string {
		return "{ name: to, typed_config: { '@type': x/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: { request_mutations: [" + all + "] } } }"
	}
	metadata := func(path string) string {
		return "[{ actions: [{ metadata: { descriptor_key: user, metadata_key: { key: ns, path: [" + path + "] } } }] }]"
	}
	own := func(elements string) string { return "rate_limits: [" + elements + "]" }
	for name, tt := range map[string]struct {
		// filter are fields of the rate limit filter, before is a filter before it, host are fields of the virtual host,
		// manager those of the connection manager, and clusters is a file.
		filter, before, host, manager, clusters string
		// finding is the start of a warning or an error; empty if there is none. row is a part of the statement.
		finding, row string
	}{
		"a limit": {
			host: "rate_limits: [{ actions: [{ " + user + " }] }]",
			row:  "all, route /: user=<x-user header>" + rule + "asked at the start, 1 hit, charged once; only requests with the header x-user",
		},
		"asked only at the end": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%BYTES_SENT%' }, apply_on_stream_done: true }"),
			finding: "error: never-denies: the limit of user never denies a request: every element that reaches it has apply_on_stream_done", row: rule + "charged at the end, hits of BYTES_SENT",
		},
		"asked with 0 hits, and charged at the end": {
			filter: own("{ actions: [{ " + user + " }], hits_addend: { number: 0 } }, { actions: [{ " + user + " }], hits_addend: { format: '%BYTES_SENT%' }, apply_on_stream_done: true }"),
			row:    rule + "asked at the start, 0 hits, charges nothing",
		},
		"0 hits": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { number: 0 } }"),
			finding: "error: never-denies: the limit of user never denies a request: no element that reaches it charges hits (0 hits)", row: "0 hits, charges nothing",
		},
		"only refunds": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { number: 1, is_negative_hits: true } }"),
			finding: "error: never-denies: ", row: "a refund of 1 hit, charges nothing",
		},
		"bytes at the start": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%BYTES_RECEIVED%' } }"),
			finding: "warning: no-effect: %BYTES_RECEIVED% is 0 when a request arrives", row: "charges nothing",
		},
		"a response code at the start": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%RESPONSE_CODE%' } }"),
			finding: "error: no-effect: the descriptor is never sent: %RESPONSE_CODE% has no value when a request arrives", row: "never asked, since %RESPONSE_CODE% has no value",
		},
		"text as hits": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%PROTOCOL%' } }"),
			finding: "error: no-effect: the descriptor is never sent: %PROTOCOL% is no number", row: "never asked",
		},
		"a time as hits": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%START_TIME(%s)%' } }"),
			finding: "error: no-effect: the descriptor is never sent: %START_TIME(%s)% is no number", row: "never asked",
		},
		"hits that no filter sets": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%FILTER_STATE(hits)%' } }"),
			finding: "warning: no-effect: no filter before the rate limit filter sets %FILTER_STATE(hits)%",
		},
		"a value with a space at the end": {
			host:    "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: x, string_match: { exact: 'a ' } }] } }] }]",
			finding: "error: no-effect: the descriptor is never sent: no header has spaces at the ends of its value", row: "never asked",
		},
		"hits of a header": {
			filter:  own("{ actions: [{ " + user + " }], hits_addend: { format: '%REQ(x-page-size)%' } }"),
			finding: "warning: client-hits: clients choose the hits with %REQ(x-page-size)%", row: "only requests with the header x-user and with a number in REQ(x-page-size)",
		},
		"hits of metadata that nothing sets": {
			before: toTenant, filter: own("{ actions: [{ " + user + " }], hits_addend: { format: '%DYNAMIC_METADATA(ns:tokens)%' } }"),
			finding: "error: no-effect: the descriptor is never sent: the hits have no value: the filter at envoy.yaml:8:15 sets the metadata ns, but not its key tokens", row: "never asked",
		},
		"metadata of a route that has none": {
			host:    "rate_limits: [{ actions: [{ metadata: { descriptor_key: user, source: ROUTE_ENTRY, metadata_key: { key: ns, path: [{ key: tenant }] } } }] }]",
			finding: "error: no-effect: the descriptor is never sent: the route, at envoy.yaml:21:26, has no text in its metadata ns:tenant", row: "never asked, since the route",
		},
		"metadata of a cluster that has none": {
			host:     "rate_limits: [{ actions: [{ metadata: { descriptor_key: user, source: CLUSTER_ENTRY, metadata_key: { key: ns, path: [{ key: tenant }] } } }] }]",
			clusters: "static_resources: { clusters: [{ name: backend }] }",
			finding:  "error: no-effect: the descriptor is never sent: no cluster has a text in its metadata ns:tenant", row: "never asked, since no cluster",
		},
		"metadata of a cluster": {
			host:     "rate_limits: [{ actions: [{ metadata: { descriptor_key: user, source: CLUSTER_ENTRY, metadata_key: { key: ns, path: [{ key: tenant }] } } }] }]",
			clusters: "static_resources: { clusters: [{ name: backend, metadata: { filter_metadata: { ns: { tenant: a } } } }] }", row: "charged once; only requests whose cluster has",
		},
		"metadata of an upstream host": {
			host:    "rate_limits: [{ actions: [{ metadata: { descriptor_key: user, source: CLUSTER_LOCALITY_ENTRY, metadata_key: { key: ns, path: [{ key: tenant }] } } }] }]",
			finding: "error: no-effect: the descriptor is never sent: CLUSTER_LOCALITY_ENTRY has no value before Envoy has selected", row: "never asked, since CLUSTER_LOCALITY_ENTRY",
		},
		"metadata of an impossible header": {
			before: strings.Replace(toTenant, "x-tenant", "x tenant", 1), host: "rate_limits: " + metadata("{ key: tenant }"),
			finding: `error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets ns:tenant, but no request has a header "x tenant"`, row: "never asked",
		},
		"metadata of a binary header": {
			before: strings.Replace(toTenant, "key: tenant", "key: tenant, type: PROTOBUF_VALUE", 1), host: "rate_limits: " + metadata("{ key: tenant }"),
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets ns:tenant, but a header cannot contain a PROTOBUF_VALUE without encode: BASE64", row: "never asked",
		},
		"metadata of an encoded header": {
			before: strings.Replace(toTenant, "key: tenant", "key: tenant, type: PROTOBUF_VALUE, encode: BASE64", 1), host: "rate_limits: " + metadata("{ key: tenant }"), row: "asked at the start",
		},
		"hits of 1 on a host": {
			host: "rate_limits: [{ actions: [{ " + user + " }], hits_addend: { number: 1 } }]", row: "charged once",
		},
		"hits on a host": {
			host:    "rate_limits: [{ actions: [{ " + user + " }], hits_addend: { number: 2 } }]",
			finding: "error: hits-dropped: ", row: "1 hit, charged once",
		},
		"another key of metadata": {
			before: toTenant, host: "rate_limits: " + metadata("{ key: tennant }"),
			finding: `error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets the metadata ns, but not its key tennant; did you mean "tenant"?`, row: "never asked",
		},
		"the key of metadata": {
			before: toTenant, host: "rate_limits: " + metadata("{ key: tenant }"),
			row: "user=<metadata ns:tenant>" + rule + "asked at the start, 1 hit, charged once; only requests with the metadata ns:tenant",
		},
		"a number as metadata": {
			before: setNumber, host: "rate_limits: " + metadata("{ key: tenant }"),
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets ns:tenant, but as a number, and the action metadata reads only text", row: "never asked",
		},
		"a part of metadata": {
			before: setNumber, host: "rate_limits: " + metadata("{ key: nested }, { key: tenant }"), row: "asked at the start",
		},
		"metadata of the response": {
			before: strings.Replace(toTenant, "request_rules", "response_rules", 1), host: "rate_limits: " + metadata("{ key: tenant }"),
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets ns:tenant, but when the response arrives", row: "never asked",
		},
		"a header with a space": {
			host:    "rate_limits: [{ actions: [{ request_headers: { header_name: 'x user', descriptor_key: user } }] }]",
			finding: `error: no-effect: the descriptor is never sent: no request has a header "x user", since " " cannot be in the name of a header`, row: "never asked",
		},
		"a pseudo-header that does not exist": {
			host:    "rate_limits: [{ actions: [{ request_headers: { header_name: ':user', descriptor_key: user } }] }]",
			finding: `error: no-effect: the descriptor is never sent: no request has a pseudo-header ":user"`, row: "never asked",
		},
		"a header that an earlier filter removes": {
			before: strings.Replace(toTenant, "header: x-tenant,", "header: x-user, remove: true,", 1), host: "rate_limits: " + userPolicy,
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 removes the header x-user before", row: "never asked, since the filter",
		},
		"a header that a mutation removes": {
			before: mutation("{ remove: X-User }"), host: "rate_limits: " + userPolicy,
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 removes the header x-user", row: "never asked",
		},
		"a header that a mutation replaces": {
			before: mutation("{ remove: x-user }, { append: { header: { key: x-user, value: a } } }"), host: "rate_limits: " + userPolicy, row: "charged once",
		},
		"a header that a mutation adds and removes": {
			before: mutation("{ append: { header: { key: x-user, value: a } } }, { remove: x-user }"), host: "rate_limits: " + userPolicy,
			finding: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 removes the header x-user", row: "never asked",
		},
		"a header that is removed before routing": {
			manager: "early_header_mutation_extensions: [{ typed_config: { '@type': x/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation, mutations: [{ remove: x-user }] } }]",
			host:    "rate_limits: " + userPolicy, finding: "error: no-effect: the descriptor is never sent: early_header_mutation_extensions, at", row: "never asked",
		},
		"a header that Envoy removes": {
			host:    "rate_limits: " + strings.Replace(userPolicy, "x-user", "x-envoy-retry-on", 1),
			finding: "error: no-effect: the descriptor is never sent: Envoy removes the header x-envoy-retry-on", row: "never asked",
		},
		"a header that Envoy removes at the edge": {
			manager: "use_remote_address: true", host: "rate_limits: " + strings.Replace(userPolicy, "x-user", "x-envoy-original-path", 1),
			finding: "error: no-effect: the descriptor is never sent: Envoy removes the header x-envoy-original-path", row: "never asked",
		},
		"a header of an earlier Envoy": {host: "rate_limits: " + strings.Replace(userPolicy, "x-user", "x-envoy-original-path", 1), row: "charged once"},
		"another number for each request": {
			host: "rate_limits: " + strings.Replace(userPolicy, "x-user", "x-request-id", 1), finding: "warning: no-effect: x-request-id differs for each request", row: "charged once",
		},
		"two values of a header": {
			host: "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [" +
				"{ name: x, string_match: { exact: a } }, { name: x, string_match: { exact: b } }] } }] }]",
			finding: "error: no-effect: the descriptor is never sent: no request has both this value of x", row: "never asked",
		},
		"no addresses": {
			host:    "rate_limits: [{ actions: [{ remote_address_match: { descriptor_key: user, descriptor_value: a, address_matcher: {} } }] }]",
			finding: "error: no-effect: the descriptor is never sent: address_matcher has no ranges", row: "never asked",
		},
		"an element twice": {
			host:    "rate_limits: [{ actions: [{ " + user + " }] }, { actions: [{ " + user + " }] }]",
			finding: "warning: charged-twice: each request charges the counter of user=<x-user header> twice, since the element at", row: "charged 2 times",
		},
		"an element three times": {
			host:    "rate_limits: [{ actions: [{ " + user + " }] }, { actions: [{ " + user + " }] }, { actions: [{ " + user + " }] }]",
			finding: "warning: charged-twice: ", row: "charged 3 times; only requests with the header x-user\nall, route /: user=<x-user header>" + rule + "asked at the start, 1 hit, charged 3 times; only requests with the header x-user\nall",
		},
		"an element twice, and two filters": {
			before: second, host: "rate_limits: [{ actions: [{ " + user + " }] }, { actions: [{ " + user + " }] }]",
			finding: "warning: charged-twice: ", row: "charged 4 times; only requests with the header x-user\nall, route /: user=<x-user header>" + rule + "asked at the start, 1 hit, charged 4 times",
		},
		"a list twice on one of two routes": {
			host: "rate_limits: " + userPolicy + "\nroutes: [{ match: { prefix: /a }, route: { cluster: backend, include_vh_rate_limits: true, rate_limits: " + userPolicy + " } }, { match: { prefix: / }, route: { cluster: backend } }]",
			row: "all, route /a: user=<x-user header>" + rule + "asked at the start, 1 hit, charged 2 times; only requests with the header x-user\n" +
				"all, route /: user=<x-user header>" + rule + "asked at the start, 1 hit, charged once",
			finding: "warning: charged-twice: each request charges the counter of user=<x-user header> twice",
		},
		"a header whose requests another route takes": {
			host: "routes: [{ match: { prefix: /, headers: [{ name: x-user, present_match: true }] }, route: { cluster: backend } }, { match: { prefix: / }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			row:  "all, route /: user=<x-user header>" + rule + "never asked, since the route at envoy.yaml:20:26 takes all requests with the header x-user before", finding: "warning: no-effect: the descriptor is never sent: the route at envoy.yaml:20:26 takes",
		},
		"another authority": {
			host:    "domains: [shop.example]\nrate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: host, string_match: { exact: api.example } }] } }] }]",
			finding: "error: no-effect: the descriptor is never sent: no request of the virtual host all has the authority api.example", row: "never asked, since no request of the virtual host",
		},
		"https without TLS": {
			manager: "use_remote_address: true",
			host:    "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: ':scheme', string_match: { exact: https } }] } }] }]",
			finding: "warning: no-effect: :scheme is http, since the listener accepts no TLS", row: "charged once",
		},
		"https that a filter sets": {
			manager: "use_remote_address: true", before: mutation("{ append: { header: { key: x-forwarded-proto, value: https } } }"),
			host: "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: x-forwarded-proto, string_match: { exact: https } }] } }] }]",
			row:  "charged once",
		},
		"https behind a proxy": {
			host: "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: ':scheme', string_match: { exact: https } }] } }] }]",
			row:  "charged once",
		},
		"a huge limit of metadata": {
			before: strings.Replace(setNumber, "tenant: 5", "limit: { requests_per_unit: 4000000000, unit: YEAR }", 1),
			host:   "rate_limits: [{ actions: [{ " + user + " }], limit: { dynamic_metadata: { metadata_key: { key: ns, path: [{ key: limit }] } } } }]",
			row:    "1 hit, with the limit 4000000000/year, charged once", finding: "warning: no-effect: each request has the limit 4000000000/year in place of 60/hour",
		},
		"a thousand times the limit": {
			host: "rate_limits: [{ actions: [{ " + user + " }], limit: { rate_limit: { requests_per_unit: 1000, unit: MINUTE } } }]",
			row:  "1 hit, with the limit 1000/minute, charged once", finding: "warning: no-effect: each request has the limit 1000/minute",
		},
		"less than that": {
			host: "rate_limits: [{ actions: [{ " + user + " }], limit: { rate_limit: { requests_per_unit: 999, unit: MINUTE } } }]", row: "with the limit 999/minute",
		},
		"a token of other paths": {
			before: tokens, host: "rate_limits: " + subject + "\nroutes: [{ match: { prefix: /api }, route: { cluster: backend } }]",
			finding: "error: no-effect: the descriptor is never sent: the rules of the filter at envoy.yaml:8:15 verify no token on the route at envoy.yaml:22:26", row: "never asked, since the rules",
		},
		"a token of one of two routes": {
			before: tokens, host: "rate_limits: " + subject + "\nroutes: [{ match: { prefix: /admin }, route: { cluster: backend } }, { match: { prefix: /api }, route: { cluster: backend } }]",
			row: "charged once; only requests with the metadata envoy.filters.http.jwt_authn:payload.sub\nall, route /api: user=<metadata envoy.filters.http.jwt_authn:payload.sub>" + rule + "never asked, since the rules",
		},
		"metadata of one of two routes": {
			host: "rate_limits: [{ actions: [{ metadata: { descriptor_key: user, source: ROUTE_ENTRY, metadata_key: { key: ns, path: [{ key: tenant }] } } }] }]\n" +
				"routes: [{ match: { prefix: /a }, route: { cluster: backend } }, { match: { prefix: / }, metadata: { filter_metadata: { ns: { tenant: a } } }, route: { cluster: backend } }]",
			row: "never asked, since the route, at envoy.yaml:21:26, has no text in its metadata ns:tenant\nall, route /: user=a" + rule + "asked at the start, 1 hit, charged once",
		},
		"a token of some paths":  {before: tokens, host: "rate_limits: " + subject, row: "charged once"},
		"a token of these paths": {before: tokens, host: "rate_limits: " + subject + "\nroutes: [{ match: { path: /admin/x }, route: { cluster: backend } }]", row: "charged once"},
		"a token of these paths in any case": {
			before: strings.Replace(tokens, "prefix: /admin", "prefix: /Admin, case_sensitive: false", 1),
			host:   "rate_limits: " + subject + "\nroutes: [{ match: { path: /admin/x }, route: { cluster: backend } }]", row: "charged once",
		},
		"a limit without a unit": {
			host: "rate_limits: [{ actions: [{ " + user + " }], limit: { rate_limit: { requests_per_unit: 1000 } } }]",
			row:  "1 hit, charged once", finding: "warning: no-effect: the limit has no unit, so sluice ignores it",
		},
		"the same header twice": {
			before: strings.ReplaceAll(toTenant, "x-tenant", "x-user"), host: "rate_limits: [{ actions: [{ " + user + " }] }, " + metadata("{ key: tenant }")[1:],
			finding: "warning: charged-twice: each request charges the counter of user=<metadata ns:tenant> twice", row: "charged 2 times; only requests with the metadata ns:tenant",
		},
		"a part of the same header": {
			before: strings.ReplaceAll(strings.Replace(toTenant, "key: tenant", "key: tenant, regex_value_rewrite: { pattern: { regex: a }, substitution: b }", 1), "x-tenant", "x-user"),
			host:   "rate_limits: [{ actions: [{ " + user + " }] }, " + metadata("{ key: tenant }")[1:], row: "charged once; only requests with the metadata ns:tenant",
		},
		"a filter with a matcher": {
			before: strings.Replace(second, "{ '@type'", "{ '@type': x/envoy.extensions.common.matching.v3.ExtensionWithMatcher, xds_matcher: {}, extension_config: { typed_config: { '@type'", 1) + " } }",
			host:   "rate_limits: " + userPolicy, finding: "warning: charged-twice: ", row: "only requests that the matcher of the filter does not skip and with the header x-user",
		},
		"a format that is text": {
			host:     "rate_limits: [{ actions: [{ generic_key: { descriptor_key: user, descriptor_value: '%REQ(x-user)%' } }] }]",
			clusters: "static_resources: {}", row: "all, route /: user=%REQ(x-user)%" + rule,
		},
		"a format": {
			host:     "rate_limits: [{ actions: [{ generic_key: { descriptor_key: user, descriptor_value: '%REQ(x-user)%' } }] }]",
			clusters: "static_resources: {}\nlayered_runtime: { layers: [{ name: a, static_layer: { " + formatterFeature + ": true } }] }", row: "all, route /: user=<%REQ(x-user)%>" + rule,
		},
		"a format if a layer of other files says so": {
			host:     "rate_limits: [{ actions: [{ generic_key: { descriptor_key: user, descriptor_value: '%REQ(x-user)%' } }] }]",
			clusters: "static_resources: {}\nlayered_runtime: { layers: [{ name: a, rtds_layer: {} }] }", row: "all, route /: user=<%REQ(x-user)%>" + rule,
		},
		"two actions with one value": {
			host: "rate_limits: [{ actions: [{ generic_key: { descriptor_key: user, descriptor_value: a } }] }, " +
				"{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: x }] } }] }]",
			finding: "warning: charged-twice: each request charges the counter of user=a twice", row: "charged 2 times",
		},
		"at the start and at the end": {
			filter:  own("{ actions: [{ " + user + " }] }, { actions: [{ " + user + " }], apply_on_stream_done: true }"),
			finding: "warning: charged-twice: each request charges the counter of user=<x-user header> twice", row: "charged 2 times",
		},
		"at the start, and a cost at the end": {
			filter: own("{ actions: [{ " + user + " }] }, { actions: [{ " + user + " }], hits_addend: { format: '%BYTES_SENT%' }, apply_on_stream_done: true }"), row: "charged once",
		},
		"hits of the filter state": {
			before: "{ name: to, typed_config: { '@type': x/envoy.extensions.filters.http.set_filter_state.v3.Config, on_request_headers: [{ object_key: envoy.ratelimit.hits_addend, format_string: { text_format_source: { inline_string: '2' } } }] } }",
			host:   "rate_limits: " + userPolicy, row: "hits of the filter state envoy.ratelimit.hits_addend, charged once",
		},
		"a limit from metadata": {
			before: setNumber, host: "rate_limits: [{ actions: [{ " + user + " }], limit: { dynamic_metadata: { metadata_key: { key: ns, path: [{ key: nested }] } } } }]",
			row: "1 hit, with the limit in the metadata ns:nested, charged once",
		},
		"an expression": {host: cel("request.headers['x-header.header']"), row: "user=<expression request.headers['x-header.header']>" + rule + "asked at the start, 1 hit, charged once; only requests for which"},
		"an expression with a misspelt attribute": {
			host:    cel("request.header['x-user']"),
			finding: `error: no-effect: the descriptor is never sent: an expression has no attribute request.header; did you mean "headers"`, row: "never asked",
		},
		"an expression with a key of metadata": {host: cel("metadata.filter_metadata.request.tenant"), row: "charged once"},
		"an expression with a dash": {
			host: cel("request.headers.x-user"), row: "never asked",
			finding: "error: no-effect: the descriptor is never sent: request.headers.x-user is a subtraction: write request.headers['x-user']",
		},
		"an expression with the port": {
			host: cel("source.address"), finding: "warning: no-effect: source.address differs for each connection or request", row: "charged once",
		},
		"two filters": {
			before: second, host: "rate_limits: [{ actions: [{ " + user + " }] }]",
			finding: "warning: charged-twice: each request charges its counters twice, since the filter at envoy.yaml:8:15 sends the same descriptors", row: "charged 2 times",
		},
		"two filters with two services": {
			before: strings.Replace(second, "domain: shop", "domain: shop, rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: other } } }", 1),
			host:   "rate_limits: [{ actions: [{ " + user + " }] }]", row: "charged once",
		},
		"a path with a query": {
			host:    "routes: [{ match: { path: '/a?b=1' }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "error: no-effect: no route sends this descriptor: no request takes the route, since Envoy compares the path without the query", row: "not limited, since no request",
		},
		"a path without a slash": {
			host:    "routes: [{ match: { prefix: a/ }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "error: no-effect: no route sends this descriptor: no request takes the route, since a path begins with /", row: "not limited, since no request",
		},
		"a route after one for all": {
			host:    "routes: [{ match: { safe_regex: { regex: '/.*' } }, route: { cluster: backend } }, { match: { prefix: /a }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "error: no-effect: no route sends this descriptor: no request reaches the route, because the route at envoy.yaml:20:26 matches every request", row: "not limited, since no request",
		},
		"CONNECT after all paths": {
			host: "routes: [{ match: { prefix: / }, route: { cluster: backend } }, { match: { connect_matcher: {} }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			row:  "charged once",
		},
		"a route after one for a shorter path": {
			host:    "routes: [{ match: { prefix: /api }, route: { cluster: backend } }, { match: { path: /api/a, headers: [{ name: x }] }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "error: no-effect: no route sends this descriptor: no request reaches the route, because the route at envoy.yaml:20:26 matches every path that begins with /api", row: "not limited, since no request",
		},
		"a route after one for some requests": {
			host: "routes: [{ match: { prefix: /api, headers: [{ name: x }] }, route: { cluster: backend } }, { match: { path: /api/a }, route: { cluster: backend } }, { match: { prefix: /API }, route: { cluster: backend } }, { match: { prefix: /api/a }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			row:  "charged once",
		},
		"a route for metadata": {
			host:    "routes: [{ match: { prefix: /, dynamic_metadata: [{ filter: ns }] }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "error: no-effect: no route sends this descriptor: no request takes the route, since Envoy selects the route before filters set metadata", row: "not limited, since no request",
		},
		"a route for a header of a filter": {
			before:  mutation("{ append: { header: { key: x-tier, value: a } } }"),
			host:    "routes: [{ match: { prefix: /, headers: [{ name: x-tier, present_match: true }] }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			finding: "warning: no-effect: Envoy selects the route before the filter at envoy.yaml:8:15 sets the header x-tier", row: "charged once",
		},
		"a route for a header of a filter that makes Envoy select again": {
			before: mutation("{ append: { header: { key: x-tier, value: a } } }") + "\n            - { name: lua, typed_config: { '@type': x/envoy.extensions.filters.http.lua.v3.Lua } }",
			host:   "routes: [{ match: { prefix: /, headers: [{ name: x-tier, present_match: true }] }, route: { cluster: backend, rate_limits: " + userPolicy + " } }]",
			row:    "charged once",
		},
		"upgrades without the filter": {
			manager: "upgrade_configs: [{ upgrade_type: websocket, filters: [{ name: router }] }]", host: "rate_limits: " + userPolicy,
			finding: "warning: no-effect: requests for an upgrade to websocket have filters of their own", row: "charged once",
		},
		"headers that are always present": {
			host:    "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, expect_match: false, headers: [{ name: ':method', present_match: true }] } }] }]",
			finding: "error: no-effect: the descriptor is never sent: expect_match is false, but every request has these headers", row: "never asked",
		},
		"a method in any case": {
			host: "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [" +
				"{ name: ':method', string_match: { exact: get, ignore_case: true } }, { name: ':method', string_match: { exact: GET, ignore_case: true } }] } }] }]",
			row: "charged once",
		},
		"a method in lower case": {
			host:    "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: ':method', string_match: { exact: get } }] } }] }]",
			finding: "error: no-effect: the descriptor is never sent: methods are in upper case", row: "never asked",
		},
		"nearly never": {
			host: "rate_limits: [{ actions: [{ " + user + " }] }]", filter: "filter_enforced: { default_value: { numerator: 1, denominator: MILLION } }",
			finding: "warning: no-effect: filter_enforced is 0.0001 %", row: "only requests in the 0.0001 % of filter_enforced",
		},
		"disabled by default": {
			host: "rate_limits: [{ actions: [{ " + user + " }] }]", filter: "filter_enabled: { default_value: {}, runtime_key: k }",
			finding: "warning: no-effect: filter_enabled is 0 % unless the runtime changes k, so the filter never calls", row: "never asked, since filter_enabled is 0 %",
		},
		"a route for no request": {
			host:    "rate_limits: [{ actions: [{ " + user + " }] }]\nroutes: [{ match: { prefix: /a, runtime_fraction: { default_value: { numerator: 0 } } }, route: { cluster: backend } }]",
			finding: "error: no-effect: no route sends this descriptor: runtime_fraction is 0 %", row: "not limited, since runtime_fraction is 0 %",
		},
		"a tenth": {
			host: "rate_limits: [{ actions: [{ " + user + " }] }]", filter: "filter_enabled: { default_value: { numerator: 10 } }", row: "only requests in the 10 % of filter_enabled and with the header x-user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(tt.host, "routes:") {
				tt.host += "\n" + toBackend
			}
			text := hostOf(tt.host)
			text = strings.Replace(text, "domain: shop\n", "domain: shop\n                timeout: 1s\n                "+tt.filter+"\n", 1)
			if tt.manager != "" {
				text = strings.Replace(text, "http_filters:\n", tt.manager+"\n          http_filters:\n", 1)
			}
			if tt.before != "" {
				text = strings.Replace(text, "http_filters:\n", "http_filters:\n            - "+tt.before+"\n", 1)
			}
			files := []File{{"envoy.yaml", []byte(text)}}
			if tt.clusters != "" {
				files = append(files, File{"clusters.yaml", []byte(tt.clusters)})
			}
			c, err := Read(files)
			if err != nil {
				t.Fatal(err)
			}
			findings, statement := c.Verify(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 60, count_refused: true } }]\n"))
			var found, rows []string
			for _, f := range findings {
				if s := f.Severity.String(); s == "error" || s == "warning" {
					found = append(found, strings.TrimPrefix(f.String(), f.Pos.String()+": "))
				}
			}
			for _, row := range statement.Rows {
				rows = append(rows, row.String())
			}
			if all := strings.Join(found, "\n"); tt.finding == "" && all != "" || !strings.Contains(all, tt.finding) {
				t.Errorf("found %s\nwant %s", all, tt.finding)
			}
			if all := strings.ReplaceAll(strings.Join(rows, "\n"), ", count_refused: true", ""); !strings.Contains(all, tt.row) {
				t.Errorf("the statement is\n%s\nwant %s", all, tt.row)
			}
		})
	}
}

// TestServiceThatIsNeverReached covers clusters with which every call fails.
func TestServiceThatIsNeverReached(t *testing.T) {
	for name, tt := range map[string]struct{ cluster, manager, want string }{
		"HTTP/2":                        {"explicit_http_config: { http2_protocol_options: {} } } }", "", ""},
		"the protocol of the client":    {"use_downstream_protocol_config: {} } }", "", "error: cluster: the cluster \"sluice\" speaks the protocol of the client"},
		"the client's, which is HTTP/2": {"use_downstream_protocol_config: {} } }", "codec_type: HTTP2", ""},
		"no calls that wait":            {"explicit_http_config: { http2_protocol_options: {} } } }\ncircuit_breakers: { thresholds: [{ max_requests: 10000, max_pending_requests: 0 }] }", "", "max_pending_requests is 0, so every call fails"},
		"subsets":                       {"explicit_http_config: { http2_protocol_options: {} } } }\nlb_subset_config: { subset_selectors: [{ keys: [v] }] }", "", "lb_subset_config has no fallback_policy"},
		"subsets with a fallback":       {"explicit_http_config: { http2_protocol_options: {} } } }\nlb_subset_config: { fallback_policy: ANY_ENDPOINT, subset_selectors: [{ keys: [v] }] }", "", ""},
		"calls that are dropped":        {"explicit_http_config: { http2_protocol_options: {} } } }\nload_assignment: { policy: { drop_overloads: [{ drop_percentage: { numerator: 100 } }] } }", "", "drop_overloads drops 100 %"},
		"no calls at once":              {"explicit_http_config: { http2_protocol_options: {} } } }, circuit_breakers: { thresholds: [{ max_requests: 0 }] }", "", "error: cluster: cluster \"sluice\": max_requests is 0"},
	} {
		text := strings.Replace(hostOf("rate_limits: "+userPolicy+"\n"+toBackend), "domain: shop\n", "domain: shop\n                rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice } } }\n", 1)
		text = strings.Replace(text, "http_filters:\n", tt.manager+"\n          http_filters:\n", 1)
		if !strings.Contains(tt.cluster, "load_assignment") {
			tt.cluster += "\nload_assignment: {}"
		}
		cluster := "name: sluice\ntyped_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { '@type': x/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, " + tt.cluster
		c, err := Read([]File{{"envoy.yaml", []byte(text)}, {"cluster.yaml", []byte(strings.Replace(cluster, "} }, circuit_breakers", "} }\ncircuit_breakers", 1))}})
		if err != nil {
			t.Fatal(name, err)
		}
		var found []string
		for _, f := range findingsOf(t, c) {
			if strings.Contains(f, ": error: ") {
				found = append(found, f)
			}
		}
		if all := strings.Join(found, "\n"); tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
			t.Errorf("%s: found %q, want %q", name, all, tt.want)
		}
	}
}

// TestLeasesOfConnections covers a network filter, which makes no call when a connection ends.
func TestLeasesOfConnections(t *testing.T) {
	const listener = `filter_chains: [{ filters: [{ typed_config: { '@type': x/envoy.extensions.filters.network.ratelimit.v3.RateLimit, stat_prefix: s, domain: shop, timeout: 1s,
  descriptors: [{ entries: [{ key: user, value: a }] }], rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice } } } } }] }]`
	c, err := Read([]File{{"envoy.yaml", []byte(listener)}})
	if err != nil {
		t.Fatal(err)
	}
	found := c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 3, algorithm: concurrency, name: n } }]\n"))
	if len(found) != 1 || !strings.Contains(found[0].String(), "error: leases: the lease of user is never released, since a network filter") {
		t.Errorf("found %v", found)
	}
}

func hostOf(host string) string {
	i := strings.Index(listenerText, "                domains:")
	return listenerText[1:i] + "                " + indent(`domains: ["*"]`+"\n"+strings.TrimSpace(host), "                ") + "\n"
}
