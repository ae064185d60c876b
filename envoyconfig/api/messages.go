package api

import (
	"maps"
	"slices"
)

// The messages that are read.
var (
	bootstrapMessage = message{
		"node":               having(nodeMessage),
		"static_resources":   having(message{"listeners": listOf(anObject), "clusters": listOf(anObject)}),
		"layered_runtime":    runtimeWant,
		"rate_limit_service": misplaced("into the rate limit filter: here it was of the v2 API"),
	}
	nodeMessage = message{
		"cluster": aText,
		"user_agent_build_version": having(message{
			"version": having(message{"major_number": aNumber, "minor_number": aNumber}),
		}),
	}
	runtimeWant = having(message{"layers": listOf(having(message{"static_layer": anObject}))})

	listenerMessage = message{
		"name":                 aText,
		"filter_chains":        listOf(having(chainMessage)),
		"default_filter_chain": having(chainMessage),
		"api_listener":         having(message{"api_listener": anyOne}),
	}
	chainMessage = message{
		"filters":            listOf(having(message{"typed_config": anyOne})),
		"filter_chain_match": having(message{"server_names": listOf(aText)}),
	}
	managerMessage = message{
		"http_filters": filtersWant, "route_config": having(tableMessage), "rds": having(message{"route_config_name": aText}),
		"use_remote_address": aBoolean, "skip_xff_append": aBoolean, "xff_num_trusted_hops": aNumber, "append_x_forwarded_port": aBoolean,
		"strip_any_host_port": aBoolean, "strip_matching_host_port": aBoolean, "strip_trailing_host_dot": aBoolean,
		"add_user_agent": aBoolean, "merge_slashes": aBoolean, "normalize_path": aBoolean, "path_with_escaped_slashes_action": anEnum,
		"common_http_protocol_options": having(message{"headers_with_underscores_action": anEnum}),
		"upgrade_configs":              listOf(having(message{"upgrade_type": aText, "enabled": aBoolean, "filters": filtersWant})),
		"http_protocol_options":        having(message{"ignore_http_11_upgrade": listOf(anObject)}),
		"scheme_header_transformation": anObject, "internal_address_config": all(message{"unix_sockets": aBoolean, "cidr_ranges": rangesWant}),
	}
	rangesWant        = listOf(all(message{"address_prefix": anAddress, "prefix_len": upTo(128)}).needing("address_prefix"))
	filtersWant       = listOf(having(httpFilterMessage))
	httpFilterMessage = message{"name": aText, "disabled": aBoolean, "typed_config": anyOne}

	rateLimitWant = all(message{
		"domain": aText, "stage": upTo(10), "request_type": oneOfTexts("internal", "external", "both"), "timeout": aDuration,
		"failure_mode_deny": aBoolean, "failure_mode_deny_percent": fractionWant, "rate_limited_as_resource_exhausted": aBoolean,
		"enable_x_ratelimit_headers": oneOfNames("OFF", "DRAFT_VERSION_03"), "disable_x_envoy_ratelimited_header": aBoolean,
		"enable_retry_after_header": aBoolean, "rate_limited_status": statusWant, "status_on_error": statusWant,
		"response_headers_to_add": listOf(anObject), "stat_prefix": aText, "metadata_namespace": aText,
		"filter_enabled": fractionWant, "filter_enforced": fractionWant, "rate_limits": ownPoliciesWant,
		"rate_limit_service": all(message{
			"transport_api_version": oneOfNames("AUTO", "V2", "V3").but("V2"),
			"grpc_service":          grpcServiceWant,
		}).needing("grpc_service"),
	}).needing("domain")
	grpcServiceWant = all(message{
		"envoy_grpc": having(message{"cluster_name": aText}).needing("cluster_name"), "google_grpc": anObject,
		"timeout": aDuration, "initial_metadata": listOf(anObject), "retry_policy": anObject,
	}).withOne("envoy_grpc", "google_grpc")
	fractionWant = having(message{
		"default_value": having(message{"numerator": aNumber, "denominator": oneOfNames("HUNDRED", "TEN_THOUSAND", "MILLION")}), "runtime_key": aText,
	}).needing("default_value")
	statusWant   = having(message{"code": anEnum})
	perRouteWant = all(message{
		"domain": aText, "rate_limits": ownPoliciesWant, "vh_rate_limits": oneOfNames("OVERRIDE", "INCLUDE", "IGNORE"),
		"override_option": oneOfNames("DEFAULT", "OVERRIDE_POLICY", "INCLUDE_POLICY", "IGNORE_POLICY"),
	})
	extension = message{"name": aText, "typed_config": anyOne}

	// What a table, a host and a route change of a request on its way to the upstream.
	changeMessage = message{
		"request_headers_to_remove": listOf(aText),
		"request_headers_to_add":    listOf(having(message{"header": having(message{"key": aText}), "append_action": anEnum, "append": aBoolean})),
	}
	tableMessage = with(changeMessage, message{
		"name": aText, "virtual_hosts": listOf(having(hostMessage)), "typed_per_filter_config": mapOf(anyOne),
		"rate_limits": misplaced("into a virtual host or a route"), "ignore_port_in_host_matching": aBoolean, "ignore_path_parameters_in_path_matching": aBoolean,
		"vhost_header": aText, "internal_only_headers": listOf(aText),
	})
	hostMessage = with(changeMessage, message{
		"name": aText, "domains": listOf(aText), "routes": listOf(routeWant), "rate_limits": policiesWant,
		"require_tls": anEnum, "typed_per_filter_config": mapOf(anyOne),
	})
	routeWant = having(with(changeMessage, message{
		"rate_limits": misplaced("below route, beside cluster"), "name": aText, "match": matchWant, "typed_per_filter_config": mapOf(anyOne),
		"metadata": having(message{"filter_metadata": mapOf(anObject)}),
		"route": having(message{
			"cluster": aText, "cluster_header": aText, "weighted_clusters": having(message{"clusters": listOf(having(message{"name": aText, "weight": aNumber, "typed_per_filter_config": mapOf(anyOne)}))}),
			"rate_limits": policiesWant, "include_vh_rate_limits": aBoolean,
			"upgrade_configs": listOf(having(message{"upgrade_type": aText, "enabled": aBoolean})),
		}),
	})).withMostOne("route", "redirect", "direct_response", "filter_action", "non_forwarding_action")
	matchWant = having(message{
		"prefix": aText, "path": aText, "path_separated_prefix": aText, "safe_regex": regexWant, "case_sensitive": aBoolean,
		"headers": headersWant, "query_parameters": queryWant,
	}).withMostOne("prefix", "path", "path_separated_prefix", "safe_regex", "connect_matcher", "path_match_policy")
	regexWant  = having(message{"regex": aPattern})
	stringWant = all(message{
		"exact": aText, "prefix": aText, "suffix": aText, "contains": aText, "safe_regex": regexWant, "custom": anObject, "ignore_case": aBoolean,
	}).withOne("exact", "prefix", "suffix", "contains", "safe_regex", "custom")
	headersWant = listOf(all(message{
		"name": aText, "exact_match": aText, "prefix_match": aText, "suffix_match": aText, "contains_match": aText,
		"safe_regex_match": regexWant, "string_match": stringWant, "range_match": having(message{"start": anInteger, "end": anInteger}),
		"present_match": aBoolean, "invert_match": aBoolean, "treat_missing_header_as_empty": aBoolean,
	}).needing("name").withMostOne(
		"exact_match", "prefix_match", "suffix_match", "contains_match", "safe_regex_match", "string_match", "range_match", "present_match"))
	queryWant = listOf(all(message{"name": aText, "present_match": aBoolean, "string_match": stringWant}).needing("name").withMostOne("present_match", "string_match"))

	// Those of a filter and of RateLimitPerRoute have no stages.
	ownPoliciesWant = listOf(all(policyMessage).needing("actions"))
	policiesWant    = listOf(all(with(policyMessage, message{"stage": upTo(10), "disable_key": aText})).needing("actions"))
	policyMessage   = message{
		"actions": listOf(actionWant), "apply_on_stream_done": aBoolean, "x_ratelimit_option": oneOfNames("UNSPECIFIED", "OFF", "DRAFT_VERSION_03"),
		"hits_addend": all(message{"number": upTo(1_000_000_000), "format": aFormat, "is_negative_hits": aBoolean}).withMostOne("number", "format"),
		"limit": all(message{
			"dynamic_metadata": all(message{"metadata_key": metadataKeyWant}).needing("metadata_key"),
			"rate_limit": all(message{
				"requests_per_unit": upTo(1<<32 - 1), "unit": oneOfNames("UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"),
			}),
		}).withOne("dynamic_metadata", "rate_limit"),
	}
	metadataKeyWant = all(message{
		"key": aText, "path": listOf(all(message{"key": aText, "index": aNumber}).withOne("key", "index")),
	}).needing("key", "path")
	metadataMessage = message{"descriptor_key": aText, "default_value": aText, "metadata_key": metadataKeyWant}
	actionMessage   = message{
		"generic_key":     all(message{"descriptor_key": aText, "descriptor_value": aText, "default_value": aText}).needing("descriptor_value"),
		"request_headers": all(message{"header_name": aText, "descriptor_key": aText, "skip_if_absent": aBoolean}).needing("header_name", "descriptor_key"),
		"header_value_match": all(message{
			"descriptor_key": aText, "descriptor_value": aText, "default_value": aText, "expect_match": aBoolean, "headers": headersWant,
		}).needing("descriptor_value", "headers"),
		"query_parameters": all(message{"query_parameter_name": aText, "descriptor_key": aText, "skip_if_absent": aBoolean}).
			needing("query_parameter_name", "descriptor_key"),
		"query_parameter_value_match": all(message{
			"descriptor_key": aText, "descriptor_value": aText, "default_value": aText, "expect_match": aBoolean, "query_parameters": queryWant,
		}).needing("descriptor_value", "query_parameters"),
		"source_cluster": all(nil), "destination_cluster": all(nil), "remote_address": all(nil),
		"masked_remote_address": all(message{"v4_prefix_mask_len": upTo(32), "v6_prefix_mask_len": upTo(128)}),
		"remote_address_match": all(message{
			"descriptor_key": aText, "descriptor_value": aText, "default_value": aText,
			"address_matcher": all(message{
				"invert_match": aBoolean, "ranges": rangesWant,
			}),
		}).needing("descriptor_value", "address_matcher"),
		"metadata": all(with(metadataMessage, message{"skip_if_absent": aBoolean, "source": oneOfNames("DYNAMIC", "ROUTE_ENTRY", "CLUSTER_ENTRY", "CLUSTER_LOCALITY_ENTRY")})).
			needing("descriptor_key", "metadata_key"),
		"dynamic_metadata": all(metadataMessage).needing("descriptor_key", "metadata_key").insteadOf("metadata"),
		"extension":        all(message{"name": aText, "typed_config": anyOne}).needing("name", "typed_config"),
	}
	actionWant = all(actionMessage).withOne(slices.Sorted(maps.Keys(actionMessage))...)

	clusterMessage = message{
		"name":                             aText,
		"hosts":                            misplaced("into load_assignment, as endpoints: hosts was of the v2 API"),
		"circuit_breakers":                 having(message{"thresholds": listOf(having(message{"priority": anEnum, "max_requests": aNumber}))}),
		"health_checks":                    listOf(anObject),
		"typed_extension_protocol_options": mapOf(having(message{"explicit_http_config": anObject})),
		"type":                             anEnum,
		"cluster_type":                     anObject,
		"connect_timeout":                  aDuration,
		"load_assignment": having(message{"endpoints": listOf(having(message{"lb_endpoints": listOf(having(message{
			"endpoint": having(message{"address": having(message{"socket_address": having(message{
				"address": aText, "port_value": upTo(1<<16 - 1), "resolver_name": aText,
			})})}),
		}))}))}),
	}
)

// The names of the messages, which a configuration has in its @type.
const (
	Bootstrap         = "envoy.config.bootstrap.v3.Bootstrap"
	Listener          = "envoy.config.listener.v3.Listener"
	RouteTable        = "envoy.config.route.v3.RouteConfiguration"
	Cluster           = "envoy.config.cluster.v3.Cluster"
	Extension         = "envoy.config.core.v3.TypedExtensionConfig"
	ConnectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	RateLimit         = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	RateLimitPerRoute = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
	Router            = "envoy.extensions.filters.http.router.v3.Router"
	VirtualHost       = "envoy.config.route.v3.VirtualHost"
	Route             = "envoy.config.route.v3.Route"

	// LocalRateLimit is the filter that decides by itself, and asks no service. NetworkRateLimit asks about connections.
	LocalRateLimit   = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
	NetworkRateLimit = "envoy.extensions.filters.network.ratelimit.v3.RateLimit"
	FilterConfig     = "envoy.config.route.v3.FilterConfig"

	// Discovery is the answer of a management server, and Dump that of /config_dump, whose parts'
	// names begin with DumpPart.
	Discovery = "envoy.service.discovery.v3.DiscoveryResponse"
	Dump      = "envoy.admin.v3.ConfigDump"
	DumpPart  = "envoy.admin.v3."

	// EnvoyFilter is Istio's. The messages of its patches' values have the name of its applyTo
	// behind Patch.
	EnvoyFilter = "networking.istio.io/v1alpha3.EnvoyFilter"
	Patch       = EnvoyFilter + "."

	// Snippet is what sluice prints for people to copy.
	Snippet = "sluice.Snippet"
)

// messages are those that are known, by their names.
var messages = map[string]want{
	Bootstrap:         having(bootstrapMessage),
	Listener:          having(listenerMessage),
	RouteTable:        having(tableMessage),
	VirtualHost:       having(hostMessage),
	Route:             routeWant,
	Cluster:           having(clusterMessage),
	Extension:         having(extension),
	ConnectionManager: having(managerMessage),
	RateLimit:         rateLimitWant,
	RateLimitPerRoute: perRouteWant,
	NetworkRateLimit: having(message{
		"domain": aText, "descriptors": listOf(having(message{"entries": listOf(having(message{"key": aText, "value": aText}))})),
	}).needing("domain", "descriptors"),
	FilterConfig: all(message{"disabled": aBoolean, "is_optional": aBoolean, "config": anyOne}),

	RateLimitQuota: quotaWant,
	QuotaBucket:    quotaBucketWant,
	Matcher:        matcherWant,
	Predicate:      predicateWant,
	HeaderInput:    having(message{"header_name": aText}),
	QueryInput:     having(message{"query_param": aText}),

	Discovery: having(message{"resources": listOf(anObject)}),
	Snippet: having(message{
		"http_filters": filtersWant, "rate_limits": policiesWant, "typed_per_filter_config": mapOf(anyOne), "clusters": listOf(anObject),
	}),

	Dump:                             having(message{"configs": listOf(anObject)}),
	DumpPart + "BootstrapConfigDump": having(message{"bootstrap": having(message{"node": having(nodeMessage), "layered_runtime": runtimeWant})}),
	DumpPart + "ListenersConfigDump": having(message{
		"static_listeners":  listOf(having(message{"listener": anObject})),
		"dynamic_listeners": listOf(having(message{"active_state": having(message{"listener": anObject})})),
	}),
	DumpPart + "ClustersConfigDump": having(message{
		"static_clusters":         listOf(having(message{"cluster": anObject})),
		"dynamic_active_clusters": listOf(having(message{"cluster": anObject})),
	}),
	DumpPart + "RoutesConfigDump": having(message{"dynamic_route_configs": listOf(having(message{"route_config": anObject}))}),
	DumpPart + "EcdsConfigDump":   having(message{"ecds_filters": listOf(having(message{"ecds_filter": anObject}))}),

	EnvoyFilter: having(message{"spec": having(message{"config_patches": listOf(having(message{
		"apply_to": anEnum, "patch": having(message{"value": anObject}),
		"match": having(message{"route_configuration": having(message{"vhost": having(message{"name": aText})})}),
	}))})}),
	Patch + "HTTP_FILTER":      having(httpFilterMessage),
	Patch + "VIRTUAL_HOST":     having(hostMessage),
	Patch + "HTTP_ROUTE":       routeWant,
	Patch + "CLUSTER":          having(clusterMessage),
	Patch + "LISTENER":         having(listenerMessage),
	Patch + "EXTENSION_CONFIG": having(extension),
}

// with is a message with more fields.
func with(m, more message) message {
	m = maps.Clone(m)
	maps.Copy(m, more)
	return m
}
