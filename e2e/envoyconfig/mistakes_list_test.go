package envoyconfig_test

import "strings"

const (
	rateLimitType = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	router        = `                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
`
	filterBegins = "                  - name: envoy.filters.http.ratelimit\n"
	listsOfHost  = `                      rate_limits:
                        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
                        - actions: [{ remote_address: {} }]
`
	userAction  = "request_headers: { header_name: x-user, descriptor_key: user }"
	loginAction = "generic_key: { descriptor_key: route, descriptor_value: login }"
	anyPath     = "                        - match: { prefix: / }\n                          route: { cluster: backend }\n"
)

// mistakes are from the issues of envoyproxy/ratelimit, envoyproxy/envoy and istio/istio, and from
// configurations in public repositories.
var mistakes = []mistake{
	// The filter.
	{name: "the filter after the router", in: "envoy.yaml", old: router, put: "", more: []string{filterBegins, router + filterBegins}, want: "rejected"},
	{name: "no filter", in: "envoy.yaml", old: "type.googleapis.com/" + rateLimitType + "\n                      domain: shop\n                      timeout: 0.25s\n                      rate_limit_service:\n                        transport_api_version: V3\n                        grpc_service: { envoy_grpc: { cluster_name: sluice } }", put: "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors", want: "error: domain", message: "no listener has a rate limit filter"},
	{name: "the domain misspelt", in: "envoy.yaml", old: "domain: shop", put: "domain: shpo", want: "error: domain", message: `did you mean "shop"?`},
	{name: "the domain in another case", in: "envoy.yaml", old: "domain: shop", put: "domain: Shop", want: "error: domain", message: `did you mean "shop"?`},
	{name: "no timeout", in: "envoy.yaml", old: "                      timeout: 0.25s\n", put: "", want: "warning: timeout", message: "waits 20 ms"},
	{name: "the timeout next to envoy_grpc", in: "envoy.yaml", old: "                      timeout: 0.25s\n", put: "", more: []string{"{ envoy_grpc: { cluster_name: sluice } }", "{ envoy_grpc: { cluster_name: sluice }, timeout: 0.25s }"}, want: "warning: timeout", message: "has no effect"},
	{name: "a timeout in milliseconds", in: "envoy.yaml", old: "timeout: 0.25s", put: "timeout: 250ms", want: "rejected"},
	{name: "a timeout of a millisecond", in: "envoy.yaml", old: "timeout: 0.25s", put: "timeout: 0.001s", want: "warning: timeout", message: "the filter waits 1ms"},
	{name: "a timeout below the delay of replies", in: "envoy.yaml", old: "timeout: 0.25s", put: "timeout: 0.05s", want: "error: timeout", message: "max_wait"},
	{name: "a stage of only the filter", in: "envoy.yaml", old: "domain: shop\n", put: "domain: shop\n                      stage: 1\n", want: "error: no-effect", message: "no filter has its stage, 0"},
	{name: "a stage of only a list", in: "envoy.yaml", old: "- actions: [{ remote_address: {} }]", put: "- { stage: 1, actions: [{ remote_address: {} }] }", want: "error: no-effect", message: "no filter has its stage, 1"},
	{name: "a filter that is disabled", in: "envoy.yaml", old: filterBegins, put: filterBegins + "                    disabled: true\n", want: "error: no-effect", message: "disabled"},
	{name: "enabled for no request", in: "envoy.yaml", old: "domain: shop\n", put: "domain: shop\n                      filter_enabled: { default_value: { numerator: 0 } }\n", want: "error: no-effect", message: "filter_enabled is 0 %"},
	{name: "enforced for no request", in: "envoy.yaml", old: "domain: shop\n", put: "domain: shop\n                      filter_enforced: { default_value: { numerator: 0 } }\n", want: "warning: no-effect", message: "filter_enforced is 0 %"},
	{name: "internal requests only", in: "envoy.yaml", old: "domain: shop\n", put: "domain: shop\n                      request_type: internal\n", want: "error: no-effect", message: "request_type is internal"},
	{name: "the message of the v2 API", in: "envoy.yaml", old: rateLimitType + "\n", put: "envoy.config.filter.http.rate_limit.v2.RateLimit\n", want: "rejected"},
	{name: "a message that Envoy does not have", in: "envoy.yaml", old: rateLimitType + "\n", put: "envoy.extensions.filters.http.ratelimit.v3.GlobalRateLimit\n", want: "rejected"},
	{name: "config instead of typed_config", in: "envoy.yaml", old: filterBegins + "                    typed_config:", put: filterBegins + "                    config:", want: "rejected"},
	{name: "no typed_config", in: "envoy.yaml", old: router, put: filterBegins + router, want: "rejected"},
	{name: "the router without typed_config", in: "envoy.yaml", old: router, put: "                  - name: envoy.filters.http.router\n", want: "rejected"},
	{name: "another filter without typed_config, disabled", in: "envoy.yaml", old: filterBegins, put: "                  - { name: envoy.filters.http.cors, disabled: true }\n" + filterBegins, want: "rejected"},
	{name: "a filter without a name", in: "envoy.yaml", old: filterBegins + "                    typed_config:", put: "                  - typed_config:", want: "rejected"},
	{name: "config_discovery without type_urls", in: "envoy.yaml", old: router, put: "                  - { name: later, config_discovery: { config_source: { path_config_source: { path: /dev/null } } } }\n" + router, want: "rejected"},
	{name: "config_discovery next to typed_config", in: "envoy.yaml", old: filterBegins, put: filterBegins + "                    config_discovery: { config_source: { path_config_source: { path: /dev/null } }, type_urls: [type.googleapis.com/" + rateLimitType + "] }\n", want: "rejected"},
	{name: "the message misspelt", in: "envoy.yaml", old: rateLimitType + "\n", put: "envoy.extensions.filters.http.rate_limit.v3.RateLimit\n", want: "rejected"},
	{name: "the message of the network filter", in: "envoy.yaml", old: rateLimitType + "\n", put: "envoy.extensions.filters.network.ratelimit.v3.RateLimit\n", want: "rejected"},
	{name: "the transport of the v2 API", in: "envoy.yaml", old: "transport_api_version: V3", put: "transport_api_version: V2", want: "rejected"},
	{name: "a listener without the filter", in: "envoy.yaml", old: "  clusters:\n", put: `    - name: https
      address: { socket_address: { address: 127.0.0.1, port_value: 10002 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: https
                http_filters:
` + router + `                route_config:
                  virtual_hosts:
                    - name: shop
                      domains: ["*"]
` + listsOfHost + `                      routes:
` + anyPath + `  clusters:
`, want: "error: no-effect", message: "listener https has no rate limit filter"},

	{name: "no router after the filter", in: "envoy.yaml", old: router, put: "", want: "rejected"},
	{name: "no rate_limit_service", in: "envoy.yaml", old: "                      rate_limit_service:\n                        transport_api_version: V3\n                        grpc_service: { envoy_grpc: { cluster_name: sluice } }\n", put: "", want: "rejected", envoyRejects: true},

	// The cluster of the service.
	{name: "a name in a cluster of addresses", in: "envoy.yaml", old: "address: 127.0.0.1, port_value: 8081", put: "address: sluice.default, port_value: 8081", want: "rejected"},
	{name: "the name of a port", in: "envoy.yaml", old: "port_value: 8081", put: "port_value: grpc", want: "rejected"},
	{name: "the cluster misspelt", in: "envoy.yaml", old: "cluster_name: sluice } }", put: "cluster_name: sluice-ratelimit } }", want: "error: cluster", message: "not in these files"},
	{name: "a cluster that speaks HTTP/1", in: "envoy.yaml", old: "explicit_http_config: { http2_protocol_options: {} }", put: "explicit_http_config: { http_protocol_options: {} }", want: "error: cluster", message: "does not speak HTTP/2", envoyRejects: true},
	{name: "at most 1024 concurrent calls", in: "envoy.yaml", old: "      circuit_breakers: { thresholds: [{ max_requests: 10000 }] }\n", put: "", want: "warning: cluster", message: "max_requests"},
	{name: "no health check of gRPC", in: "envoy.yaml", old: "grpc_health_check: {}", put: "tcp_health_check: {}", want: "warning: cluster", message: "no gRPC health check"},
	{name: "hosts instead of load_assignment", in: "envoy.yaml", old: "    - name: backend\n", put: "    - name: backend\n      hosts: [{ socket_address: { address: 127.0.0.1, port_value: 1 } }]\n", want: "rejected"},
	{name: "a wrong address of the service", in: "envoy.yaml", old: "port_value: 8081", put: "port_value: 8080", none: "the program that listens there is not in the files; sluice call shows whether it is the service"},

	// The position of rate_limits.
	{name: "rate_limits next to route", in: "envoy.yaml", old: "                          route: { cluster: backend }\n                          typed_per_filter_config", put: "                          rate_limits: [{ actions: [{ remote_address: {} }] }]\n                          route: { cluster: backend }\n                          typed_per_filter_config", want: "rejected"},
	{name: "rate_limits of a route configuration", in: "envoy.yaml", old: "                  name: shop\n", put: "                  name: shop\n                  rate_limits: [{ actions: [{ remote_address: {} }] }]\n", want: "rejected"},
	{name: "a list of a route that replaces the list of its host", in: "envoy.yaml", old: "                            include_vh_rate_limits: true\n", put: "", want: "warning: no-effect", message: "does not send those of its virtual host"},
	{name: "settings of a route for another name", in: "envoy.yaml", old: "                            envoy.filters.http.ratelimit:\n", put: "                            envoy.rate_limit:\n", want: "error: no-effect", message: `no rate limit filter has the name "envoy.rate_limit"`},
	{name: "a list of a route with a direct response", in: "envoy.yaml", old: "                          route: { cluster: backend }\n                          typed", put: "                          direct_response: { status: 200 }\n                          typed", want: "error: no-effect", message: "the route is a direct_response"},
	{name: "a route after one that matches everything", in: "envoy.yaml", old: anyPath, put: "", more: []string{"                        - match: { path: /login }", anyPath + "                        - match: { path: /login }"}, want: "error: no-effect", message: "matches every request"},
	{name: "hits in the list of a host", in: "envoy.yaml", old: "- actions: [{ remote_address: {} }]", put: "- { actions: [{ remote_address: {} }], hits_addend: { number: 5 } }", want: "error: hits-dropped", message: "typed_per_filter_config"},

	{name: "rate_limits misspelt", in: "envoy.yaml", old: listsOfHost, put: strings.Replace(listsOfHost, "rate_limits:", "rate_limit:", 1), want: "rejected"},
	{name: "typed_per_filter_config misspelt", in: "envoy.yaml", old: "typed_per_filter_config", put: "typed_per_filter_configs", want: "rejected"},
	{name: "two matchers of the path", in: "envoy.yaml", old: "{ path: /login }", put: "{ path: /login, prefix: / }", want: "rejected"},
	{name: "an invalid regular expression", in: "envoy.yaml", old: "{ path: /login }", put: "{ safe_regex: { regex: /lo(gin } }", want: "rejected"},
	{name: "hits by number and format", in: "envoy.yaml", old: `{ format: "%BYTES_SENT%" }`, put: `{ number: 2, format: "%BYTES_SENT%" }`, want: "rejected"},
	{name: "hits of two commands", in: "envoy.yaml", old: "%BYTES_SENT%", put: "%BYTES_SENT%%BYTES_RECEIVED%", want: "rejected"},

	// The actions.
	{name: "descriptor_key misspelt", in: "envoy.yaml", old: "descriptor_key: user", put: "descriptorkey: user", want: "rejected"},
	{name: "request_headers without a key", in: "envoy.yaml", old: ", descriptor_key: user }", put: " }", want: "rejected"},
	{name: "two actions in one", in: "envoy.yaml", old: "{ remote_address: {} }", put: "{ remote_address: {}, source_cluster: {} }", want: "rejected"},
	{name: "a value that YAML reads as true", in: "envoy.yaml", old: "descriptor_value: export", put: "descriptor_value: yes", want: "rejected"},
	{name: "a limit of ten minutes", in: "envoy.yaml", old: "- actions: [{ remote_address: {} }]", put: "- { actions: [{ remote_address: {} }], limit: { rate_limit: { requests_per_unit: 5, unit: MINUTE, unit_multiplier: 10 } } }", want: "rejected"},
	{name: "two lists for one nested rule", in: "envoy.yaml", old: "                                  - " + userAction, put: "                              - actions:\n                                  - " + userAction, want: "error: unmatched", message: "deeper ones require user"},
	{name: "entries in another order", in: "envoy.yaml", old: "                                  - " + loginAction + "\n                                  - " + userAction, put: "                                  - " + userAction + "\n                                  - " + loginAction, want: "error: unmatched", message: "the rules have these entries in the order (route, login)(user, *)"},
	{name: "generic_key without a key", in: "envoy.yaml", old: "{ descriptor_key: route, descriptor_value: login }", put: "{ descriptor_value: login }", want: "error: unmatched", message: "without descriptor_key the key of generic_key is generic_key"},
	{name: "a network instead of an address", in: "envoy.yaml", old: "{ remote_address: {} }", put: "{ masked_remote_address: { v4_prefix_mask_len: 24 } }", want: "error: unmatched", message: "the key of a masked_remote_address entry is not remote_address"},
	{name: "a key in another case", in: "envoy.yaml", old: userAction + " }]", put: "request_headers: { header_name: x-user, descriptor_key: USER } }]", want: "error: unmatched", message: `did you mean "user"?`},
	{name: "a value without a rule", in: "envoy.yaml", old: "descriptor_value: login", put: "descriptor_value: log-in", want: "error: unmatched", message: "nothing matches entry 1, route=log-in"},
	{name: "an omitted entry that the rules require", in: "envoy.yaml", old: "header_name: x-user, descriptor_key: user }\n", put: "header_name: x-user, descriptor_key: user, skip_if_absent: true }\n", want: "warning: unmatched", message: "requests without user are not limited here"},
	{name: "two conditions that exclude each other", in: "envoy.yaml", old: "[{ remote_address: {} }]", put: "[{ remote_address: {} }, { header_value_match: { descriptor_value: known, headers: [{ name: cookie }] } }, { header_value_match: { descriptor_value: guest, expect_match: false, headers: [{ name: cookie }] } }]", want: "error: no-effect", message: "requires the opposite"},
	{name: "a path with its query", in: "envoy.yaml", old: userAction + " }]", put: `request_headers: { header_name: ":path", descriptor_key: user } }]`, want: "warning: query-in-key", message: "each query string has its own counter"},
	{name: "all of x-forwarded-for", in: "envoy.yaml", old: userAction + " }]", put: "request_headers: { header_name: X-Forwarded-For, descriptor_key: user } }]", want: "warning: same-address", message: "any number of counters"},
	{name: "addresses that clients choose", in: "envoy.yaml", old: "                use_remote_address: true\n", put: "", want: "warning: same-address", message: "use_remote_address: true"},
	{name: "the header misspelt", in: "envoy.yaml", old: "[{ request_headers: { header_name: x-user,", put: "[{ request_headers: { header_name: x-uesr,", none: "the headers of clients are not in the files; explain --envoy with the headers of a request reports that nothing is sent"},
	{name: "fewer trusted hops than proxies", in: "envoy.yaml", old: "use_remote_address: true", put: "use_remote_address: true\n                xff_num_trusted_hops: 1", none: "the number of proxies in front of Envoy is not in the files; explain --envoy with an x-forwarded-for shows the used address"},

	// The end of the stream.
	{name: "a header that is overwritten before the end", in: "envoy.yaml", old: "route: { cluster: backend }\n                          typed", put: "route: { cluster: backend }\n                          request_headers_to_remove: [x-user]\n                          typed", want: "error: changed", message: "the route changes x-user"},
	{name: "bytes that are not counted beyond the limit", in: "rules.yaml", old: ", count_refused: true", put: "", want: "warning: uncounted-hits", message: "set count_refused: true"},

	// The rules.
	{name: "a rule for which nothing is sent", in: "rules.yaml", old: "  - key: bytes", put: "  - { key: tenant, rate_limit: { unit: day, requests_per_unit: 1 } }\n  - key: bytes", want: "warning: unsent", message: "tenant"},
	{name: "the domain of the rules misspelt", in: "rules.yaml", old: "domain: shop", put: "domain: shops", want: "error: domain", message: `no filter uses the domain "shops"`},
	{name: "a rule that is deeper than the sent descriptor", in: "rules.yaml", old: "  - key: remote_address\n    rate_limit: { unit: minute, requests_per_unit: 600 }", put: "  - key: remote_address\n    descriptors: [{ key: path, rate_limit: { unit: minute, requests_per_unit: 600 } }]", want: "error: unmatched", message: "deeper ones require path"},
	{name: "unlimited misspelt", in: "rules.yaml", old: "requests_per_unit: 60 }", put: "unlimied: true }", want: "error", message: "unlimied"},
	{name: "an unknown unit", in: "rules.yaml", old: "unit: minute", put: "unit: minutes", want: "error", message: "minutes"},
	{name: "one key twice", in: "rules.yaml", old: "  - key: remote_address", put: "  - key: user\n    rate_limit: { unit: day, requests_per_unit: 1000 }\n  - key: remote_address", want: "error", message: "user"},
	{name: "a value that is meant as a prefix", in: "rules.yaml", old: "  - key: bytes", put: "  - { key: user, value: a/, rate_limit: { unit: minute, requests_per_unit: 1 } }\n  - key: bytes", none: "the complete value is compared, and a user may have that name; explain shows the rule of a value"},
}
