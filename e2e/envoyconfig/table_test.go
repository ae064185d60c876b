package envoyconfig_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
)

type (
	object = map[string]any
	list   = []any
)

// generator generates random configurations and requests.
type generator struct{ *rand.Rand }

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

// chance returns true with probability 1/n.
func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

// Parts of configurations and requests, few of each so that they match often.
var (
	hosts    = []string{"shop.example", "www.shop.example", "api.shop.example", "a-shop.example", "shop.test", "SHOP.example", "other.org", "shop.example:8080", "shop.example.", "shop.example.:8080"}
	domains  = []string{"shop.example", "*.shop.example", "*-shop.example", "shop.*", "api.*", "www.shop.example", "*.example", "shop.example:8080", "other.*"}
	paths    = []string{"/", "/search", "/Search", "/search/all", "/searching", "/a/b", "/a//b", "/a/b;v=1", "/a%20b", "/%41", "/x/../y", "/api/v1/items", "/api/v2"}
	prefixes = []string{"/", "/search", "/SEARCH", "/a", "/api/v1", "/x", "/a/", "/%41"}
	regexes  = []string{"/.*", "/a/.*", "/(search|api).*", "/api/v[0-9]+", ".*b", "/search"}
	names    = []string{"x-user", "x-plan", "x-number", "accept", "content-type", "x_under", ":method", ":path", ":authority"}
	values   = []string{"", "al", "Al", "alice", "42", "-7", "007", "a,b", "x y", "ü", "4two", "application/grpc", "application/grpc+proto", "POST", "/search"}
	params   = []string{"q", "user", "a b", "a%20b", "n", "Q"}
	queries  = []string{"", "?", "?q=1", "?q", "?q=", "?q=1&q=2", "?user=al&n=42", "?a%20b=c%20d", "?a+b=c+d", "?q=%zz%4", "?q=a=b", "?&&q=x", "?Q=%C3%BC", "?user=al;q=1", "?n=%34%32&q=%26"}
	forwards = []string{"192.0.2.1", "192.0.2.1, 198.51.100.7", "2001:db8::1", "2001:DB8:0:0::1", "198.51.100.7,garbage", "garbage", "10.0.0.1, 192.0.2.1 , 198.51.100.7", "::ffff:192.0.2.1", "192.0.2.1:80", "", "[2001:db8::2]"}
)

func (g generator) bootstrap() object {
	var listeners list
	for i, manager := range managers {
		fields := object{
			"stat_prefix": fmt.Sprint("l", i),
			"http_filters": list{
				g.filter("first", object{"domain": "first"}),
				g.filter("second", object{"domain": "second", "stage": 1, "request_type": pick(g, "both", "external", "internal")}),
				g.filter("third", object{"domain": "third", "rate_limits": g.policies(2, true), "request_type": pick(g, "both", "external", "internal")}),
				object{"name": "router", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
			},
			"route_config": g.table(),
		}
		maps.Copy(fields, manager)
		listeners = append(listeners, listener(fmt.Sprint("l", i), fields))
	}
	return object{
		"node": object{"id": "test", "cluster": "front"},
		"layered_runtime": object{"layers": list{
			object{"name": "first", "static_layer": object{"ratelimit": object{"off": object{"http_filter_enabled": 0}, "on": object{"http_filter_enabled": 0}}}},
			object{"name": "second", "static_layer": object{"ratelimit.on.http_filter_enabled": 100}},
		}},
		"static_resources": object{
			"listeners": listeners,
			"clusters":  testClusters,
		},
	}
}

// testClusters are the rate limit service and a backend.
var testClusters = list{
	object{
		"name": "sluice", "connect_timeout": "1s",
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
	},
	object{"name": "backend", "connect_timeout": "1s"},
}

// managers are the connection manager settings of the listeners, which differ in how they find the
// client address.
var managers = []object{
	{},
	{"use_remote_address": true, "normalize_path": true, "merge_slashes": true},
	{"use_remote_address": true, "xff_num_trusted_hops": 1},
	{"xff_num_trusted_hops": 1, "skip_xff_append": true},
	{"use_remote_address": true, "internal_address_config": object{"cidr_ranges": list{object{"address_prefix": "127.0.0.0", "prefix_len": 8}}}},
	{"internal_address_config": object{"cidr_ranges": list{
		object{"address_prefix": "192.0.2.0", "prefix_len": 24}, object{"address_prefix": "2001:db8::", "prefix_len": 32},
	}}},
	{"strip_any_host_port": true},
	{"strip_trailing_host_dot": true},
	{"strip_trailing_host_dot": true, "strip_any_host_port": true},
	{"upgrade_configs": list{
		object{"upgrade_type": "websocket", "filters": list{generator{}.filter("first", object{"domain": "upgraded"}), httpFilter("router", "router.v3.Router", nil)}},
		object{"upgrade_type": "other"},
	}},
}

func (g generator) filter(name string, fields object) object {
	fields["@type"] = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	fields["timeout"] = "180s"
	fields["failure_mode_deny"] = true
	fields["rate_limit_service"] = object{
		"transport_api_version": "V3",
		"grpc_service": object{
			"envoy_grpc":       object{"cluster_name": "sluice"},
			"initial_metadata": list{object{"key": caseHeader, "value": "%REQ(" + caseHeader + ")%"}},
		},
	}
	return object{"name": name, "typed_config": fields}
}

func (g generator) table() object {
	virtual := list{}
	left := append([]string{"*"}, domains...)
	g.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for i := 0; len(left) > 0; i++ {
		n := min(1+g.IntN(2), len(left))
		host := object{"name": fmt.Sprint("h", i), "domains": left[:n], "routes": g.routes()}
		left = left[n:]
		if !g.chance(4) {
			host["rate_limits"] = g.policies(3, false)
		}
		if g.chance(6) {
			host["typed_per_filter_config"] = g.perFilter()
		}
		if g.chance(8) {
			host["require_tls"] = pick(g, "EXTERNAL_ONLY", "ALL")
		}
		virtual = append(virtual, host)
	}
	t := object{"virtual_hosts": virtual}
	if g.chance(2) {
		t["ignore_port_in_host_matching"] = true
	}
	if g.chance(3) {
		t["ignore_path_parameters_in_path_matching"] = true
	}
	if g.chance(3) {
		t["typed_per_filter_config"] = g.perFilter()
	}
	if g.chance(3) {
		t["internal_only_headers"] = list{"x-user", "x-plan"}
	}
	return t
}

func (g generator) routes() list {
	var routes list
	for i := range 2 + g.IntN(6) {
		r := object{"name": fmt.Sprint("r", i), "match": g.match(), "metadata": object{"filter_metadata": object{"ns": object{"tier": "gold", "deep": object{"er": "x"}, "n": 5}}}}
		if i == 0 || g.chance(4) {
			r["match"] = object{"prefix": pick(g, prefixes...)}
		}
		switch g.IntN(8) {
		case 0:
			r["direct_response"] = object{"status": 200}
		case 1:
			r["redirect"] = object{"path_redirect": "/moved"}
		default:
			action := object{"cluster": "backend"}
			switch g.IntN(6) {
			case 0:
				action = object{"cluster_header": "x-none"}
			case 1:
				entry := object{"name": "backend", "weight": 1}
				if g.chance(2) {
					entry["typed_per_filter_config"] = g.perFilter()
				}
				action = object{"weighted_clusters": object{"clusters": list{entry}}}
				if g.chance(4) {
					action = object{"weighted_clusters": object{"clusters": list{entry, object{"name": "backend", "weight": 1}}}}
				}
			}
			if g.chance(4) {
				action["upgrade_configs"] = list{object{"upgrade_type": pick(g, "websocket", "OTHER"), "enabled": g.chance(2)}}
			}
			if !g.chance(3) {
				action["rate_limits"] = g.policies(3, false)
			}
			if g.chance(5) {
				action["include_vh_rate_limits"] = g.chance(2)
			}
			r["route"] = action
		}
		if g.chance(4) {
			r["typed_per_filter_config"] = g.perFilter()
		}
		routes = append(routes, r)
	}
	return routes
}

func (g generator) perFilter() object {
	config := object{}
	for _, name := range []string{"first", "second", "third"} {
		if g.chance(2) {
			continue
		}
		own := object{"@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"}
		if g.chance(2) {
			own["vh_rate_limits"] = pick(g, "OVERRIDE", "INCLUDE", "IGNORE")
		}
		if g.chance(3) {
			own["rate_limits"] = g.policies(2, true)
		}
		if g.chance(4) {
			own["domain"] = "other"
		}
		config[name] = own
		switch g.IntN(6) {
		case 0:
			config[name] = object{"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true}
		case 1:
			config[name] = object{"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": own}
		}
	}
	return config
}

func (g generator) match() object {
	m := object{}
	switch g.IntN(6) {
	case 0:
		m["path"] = pick(g, paths...)
	case 1:
		m["safe_regex"] = object{"regex": pick(g, regexes...)}
	case 2:
		m["path_separated_prefix"] = pick(g, "/search", "/a", "/api/v1")
	default:
		m["prefix"] = pick(g, prefixes...)
	}
	if g.chance(4) {
		m["case_sensitive"] = false
	}
	if g.chance(3) {
		m["headers"] = g.headerMatchers()
	}
	if g.chance(5) {
		m["query_parameters"] = g.queryMatchers()
	}
	if g.chance(8) {
		m["grpc"] = object{}
	}
	return m
}

func (g generator) headerMatchers() list {
	var all list
	for range 1 + g.IntN(2) {
		m := object{"name": pick(g, names...)}
		switch g.IntN(10) {
		case 0:
			m["present_match"] = g.chance(2)
		case 1:
			m["range_match"] = object{"start": "-10", "end": pick(g, "0", "43", "100")}
		case 2, 3, 4, 5:
			m["string_match"] = g.stringMatcher()
		case 6:
			m["exact_match"] = pick(g, values[1:]...)
		case 7:
			m["safe_regex_match"] = object{"regex": pick(g, "[a-z]+", "al.*", "\\d+")}
		case 8:
			m[pick(g, "prefix_match", "suffix_match", "contains_match")] = pick(g, "a", "42", "l")
		}
		if g.chance(3) {
			m["invert_match"] = true
		}
		if g.chance(4) {
			m["treat_missing_header_as_empty"] = true
		}
		all = append(all, m)
	}
	return all
}

func (g generator) stringMatcher() object {
	m := object{}
	switch g.IntN(5) {
	case 0:
		m["exact"] = pick(g, values...)
	case 1:
		m["safe_regex"] = object{"regex": pick(g, "[a-z]+", "^al", "al.*", "(?i)AL", "\\d+", ".", "..", "[^a]+", "ü", "(?i)Ü")}
	default:
		m[pick(g, "prefix", "suffix", "contains")] = pick(g, "a", "A", "42", "li", "e")
	}
	if m["safe_regex"] == nil && g.chance(3) {
		m["ignore_case"] = true
	}
	return m
}

func (g generator) queryMatchers() list {
	var all list
	for range 1 + g.IntN(2) {
		m := object{"name": pick(g, params...)}
		switch g.IntN(4) {
		case 0:
			m["present_match"] = g.chance(2)
		case 1, 2:
			m["string_match"] = g.stringMatcher()
		}
		all = append(all, m)
	}
	return all
}

// policies returns a rate_limits list. own is true for the filter's own policies, which cannot have
// stages.
func (g generator) policies(most int, own bool) list {
	var all list
	for range 1 + g.IntN(most) {
		p := object{}
		var actions list
		for range 1 + g.IntN(3) {
			actions = append(actions, g.action())
		}
		p["actions"] = actions
		if !own && g.chance(3) {
			p["stage"] = g.IntN(3)
		}
		if !own && g.chance(6) {
			p["disable_key"] = pick(g, "off", "on", "none")
		}
		if g.chance(4) {
			p["hits_addend"] = object{"number": g.IntN(4)}
			if g.chance(4) {
				p["hits_addend"] = object{"number": 2, "is_negative_hits": true}
			}
		}
		if g.chance(8) {
			p["apply_on_stream_done"] = true
		}
		switch g.IntN(10) {
		case 0:
			p["limit"] = object{"rate_limit": object{"requests_per_unit": g.IntN(100), "unit": pick(g, "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")}}
		case 1:
			p["limit"] = object{"dynamic_metadata": object{"metadata_key": object{"key": "ns", "path": list{object{"key": "limit"}}}}}
		}
		all = append(all, p)
	}
	return all
}

func (g generator) action() object {
	key := pick(g, "", "k", "key-2")
	described := func(o object) object {
		if key != "" {
			o["descriptor_key"] = key
		}
		return o
	}
	switch g.IntN(14) {
	case 0:
		return object{"source_cluster": object{}}
	case 1:
		return object{"destination_cluster": object{}}
	case 2, 3, 4:
		return object{"request_headers": object{"header_name": pick(g, names...), "descriptor_key": "h", "skip_if_absent": g.chance(3)}}
	case 5, 6:
		return object{"query_parameters": object{"query_parameter_name": pick(g, params...), "descriptor_key": "q", "skip_if_absent": g.chance(3)}}
	case 7:
		return object{"remote_address": object{}}
	case 8:
		o := object{}
		if g.chance(2) {
			o["v4_prefix_mask_len"] = g.IntN(33)
			o["v6_prefix_mask_len"] = g.IntN(129)
		}
		return object{"masked_remote_address": o}
	case 9:
		return object{"header_value_match": described(object{"descriptor_value": "v", "expect_match": !g.chance(3), "headers": g.headerMatchers()})}
	case 10:
		return object{"query_parameter_value_match": described(object{"descriptor_value": "v%20", "expect_match": !g.chance(3), "query_parameters": g.queryMatchers()})}
	case 11:
		return object{"remote_address_match": described(object{"descriptor_value": "net", "address_matcher": object{
			"ranges":       list{object{"address_prefix": pick(g, "192.0.2.0", "127.0.0.0", "0.0.0.0", "2001:db8::"), "prefix_len": g.IntN(33)}},
			"invert_match": g.chance(3),
		}})}
	case 12:
		o := object{"descriptor_key": "m", "source": "ROUTE_ENTRY", "skip_if_absent": g.chance(2), "metadata_key": object{"key": "ns", "path": pick(g, list{object{"key": "tier"}}, list{object{"key": "deep"}, object{"key": "er"}}, list{object{"key": "n"}}, list{object{"key": "none"}})}}
		if g.chance(3) {
			o["default_value"] = "bronze"
		}
		if g.chance(3) {
			o["source"] = "DYNAMIC"
		}
		return object{"metadata": o}
	default:
		return object{"generic_key": described(object{"descriptor_value": pick(g, "v", "a b", "%REQ(x-user)%")})}
	}
}
