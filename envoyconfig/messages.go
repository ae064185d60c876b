package envoyconfig

// The messages that are read.
var (
	bootstrapMessage = message{
		"node":             having(nodeMessage),
		"static_resources": having(message{"listeners": listOf(anObject), "clusters": listOf(anObject)}),
		"layered_runtime":  runtimeWant,
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
	}
	filtersWant       = listOf(having(httpFilterMessage))
	httpFilterMessage = message{"name": aText, "disabled": aBoolean, "typed_config": anyOne}

	rateLimitMessage = message{
		"domain": aText, "stage": aNumber, "request_type": aText, "timeout": aDuration, "rate_limits": policiesWant,
		"filter_enabled": having(message{"default_value": having(message{"numerator": aNumber, "denominator": anEnum})}),
		"rate_limit_service": having(message{
			"grpc_service": having(message{"envoy_grpc": having(message{"cluster_name": aText})}),
		}),
	}
	perRouteMessage = message{"domain": aText, "rate_limits": policiesWant, "vh_rate_limits": anEnum}
	filterMessage   = message{"disabled": aBoolean, "config": anyOne}
	extension       = message{"name": aText, "typed_config": anyOne}

	tableMessage = message{
		"name": aText, "virtual_hosts": listOf(having(hostMessage)), "typed_per_filter_config": mapOf(anyOne),
		"ignore_port_in_host_matching": aBoolean, "ignore_path_parameters_in_path_matching": aBoolean,
	}
	hostMessage = message{
		"name": aText, "domains": listOf(aText), "routes": listOf(having(routeMessage)), "rate_limits": policiesWant,
		"require_tls": anEnum, "typed_per_filter_config": mapOf(anyOne),
	}
	routeMessage = message{
		"name": aText, "match": having(matchMessage), "typed_per_filter_config": mapOf(anyOne),
		"metadata": having(message{"filter_metadata": mapOf(anObject)}),
		"route": having(message{
			"cluster": aText, "cluster_header": aText, "weighted_clusters": having(message{"clusters": listOf(having(message{"name": aText}))}),
			"rate_limits": policiesWant, "include_vh_rate_limits": aBoolean,
		}),
	}
	matchMessage = message{
		"prefix": aText, "path": aText, "path_separated_prefix": aText, "safe_regex": regexWant, "case_sensitive": aBoolean,
		"headers": headersWant, "query_parameters": queryWant,
	}
	regexWant  = having(message{"regex": aText})
	stringWant = having(message{
		"exact": aText, "prefix": aText, "suffix": aText, "contains": aText, "safe_regex": regexWant, "ignore_case": aBoolean,
	})
	headersWant = listOf(having(message{
		"name": aText, "exact_match": aText, "prefix_match": aText, "suffix_match": aText, "contains_match": aText,
		"safe_regex_match": regexWant, "string_match": stringWant, "range_match": having(message{"start": anInteger, "end": anInteger}),
		"present_match": aBoolean, "invert_match": aBoolean, "treat_missing_header_as_empty": aBoolean,
	}))
	queryWant = listOf(having(message{"name": aText, "present_match": aBoolean, "string_match": stringWant}))

	policiesWant = listOf(having(message{
		"stage": aNumber, "apply_on_stream_done": aBoolean, "actions": listOf(having(actionMessage)),
		"hits_addend": having(message{"number": aNumber, "format": aText, "is_negative_hits": aBoolean}),
	}))
	metadataMessage = message{
		"descriptor_key": aText, "default_value": aText, "skip_if_absent": aBoolean, "source": anEnum,
		"metadata_key": having(message{"key": aText, "path": listOf(having(message{"key": aText}))}),
	}
	actionMessage = message{
		"generic_key":     having(message{"descriptor_key": aText, "descriptor_value": aText}),
		"request_headers": having(message{"header_name": aText, "descriptor_key": aText, "skip_if_absent": aBoolean}),
		"header_value_match": having(message{
			"descriptor_key": aText, "descriptor_value": aText, "expect_match": aBoolean, "headers": headersWant,
		}),
		"query_parameters": having(message{"query_parameter_name": aText, "descriptor_key": aText, "skip_if_absent": aBoolean}),
		"query_parameter_value_match": having(message{
			"descriptor_key": aText, "descriptor_value": aText, "expect_match": aBoolean, "query_parameters": queryWant,
		}),
		"source_cluster": anObject, "destination_cluster": anObject, "remote_address": anObject,
		"masked_remote_address": having(message{"v4_prefix_mask_len": aNumber, "v6_prefix_mask_len": aNumber}),
		"remote_address_match": having(message{
			"descriptor_key": aText, "descriptor_value": aText,
			"address_matcher": having(message{
				"invert_match": aBoolean, "ranges": listOf(having(message{"address_prefix": aText, "prefix_len": aNumber})),
			}),
		}),
		"metadata": having(metadataMessage), "dynamic_metadata": having(metadataMessage),
		"extension": having(message{"name": aText}),
	}

	clusterMessage = message{
		"name":                             aText,
		"circuit_breakers":                 having(message{"thresholds": listOf(having(message{"priority": anEnum, "max_requests": aNumber}))}),
		"health_checks":                    listOf(anObject),
		"typed_extension_protocol_options": mapOf(having(message{"explicit_http_config": anObject})),
	}

	responseMessage = message{"resources": listOf(anObject)}
	dumpMessage     = message{"configs": listOf(anObject)}

	envoyFilterMessage = message{"spec": having(message{"config_patches": listOf(having(message{
		"apply_to": anEnum, "patch": having(message{"value": anObject}),
		"match": having(message{"route_configuration": having(message{"vhost": having(message{"name": aText})})}),
	}))})}
	snippetMessage = message{"http_filters": filtersWant, "rate_limits": policiesWant, "clusters": listOf(anObject)}
)

// dumped are the parts of an answer of /config_dump.
var dumped = map[string]message{
	"BootstrapConfigDump": {"bootstrap": having(message{"node": having(nodeMessage), "layered_runtime": runtimeWant})},
	"ListenersConfigDump": {
		"static_listeners":  listOf(having(message{"listener": anObject})),
		"dynamic_listeners": listOf(having(message{"active_state": having(message{"listener": anObject})})),
	},
	"ClustersConfigDump": {
		"static_clusters":         listOf(having(message{"cluster": anObject})),
		"dynamic_active_clusters": listOf(having(message{"cluster": anObject})),
	},
	"RoutesConfigDump": {"dynamic_route_configs": listOf(having(message{"route_config": anObject}))},
	"EcdsConfigDump":   {"ecds_filters": listOf(having(message{"ecds_filter": anObject}))},
}

// patchMessages are what the values of an EnvoyFilter are, by its applyTo.
var patchMessages = map[string]message{
	"HTTP_FILTER": httpFilterMessage, "VIRTUAL_HOST": hostMessage, "HTTP_ROUTE": routeMessage, "CLUSTER": clusterMessage,
	"LISTENER": listenerMessage, "EXTENSION_CONFIG": extension,
}

// known are the messages that are known by their @type.
var known = map[string]message{
	connectionManager: managerMessage,
	rateLimitFilter:   rateLimitMessage,
	perRouteConfig:    perRouteMessage,
	filterConfig:      filterMessage,
}
