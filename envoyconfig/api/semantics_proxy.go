package api

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// validateManager validates combinations of a connection manager's fields and the order of its filters.
func validateManager(val *Validator, n *tree.Node) {
	if n.Field("use_remote_address").Bool(false) && len(n.Field("original_ip_detection_extensions").Nodes) > 0 {
		val.Reject(n, "Envoy accepts only one of use_remote_address, original_ip_detection_extensions: remove the other")
	}
	if n.Field("strip_any_host_port").Bool(false) && n.Field("strip_matching_host_port").Bool(false) {
		val.Reject(n, "Envoy accepts only one of strip_any_host_port, strip_matching_host_port: remove the other")
	}
	val.rejectDuplicates(n.Field("upgrade_configs"), strings.ToLower, "upgrade_type")
	val.validateHTTPFilterOrder(n.Field("http_filters"))
	for upgrade := range n.Field("upgrade_configs").Elements() {
		val.validateHTTPFilterOrder(upgrade.Field("filters"))
	}
}

// Prefixes of the message names of extensions.
const (
	httpFilters      = "envoy.extensions.filters.http."
	networkFilters   = "envoy.extensions.filters.network."
	transportSockets = "envoy.extensions.transport_sockets."
)

// validateExtension validates the typed_config of an extension whose message names have the prefix kind. Third-party
// types can have any name.
func validateExtension(kind string) func(val *Validator, n *tree.Node) {
	return func(val *Validator, n *tree.Node) {
		typed := n.Field("typed_config")
		switch typeName, _ := typed.Typed(); {
		case typeName == "" && !n.Field("config_discovery").Exists():
			val.rejectIfComplete(n, `Envoy rejects %s without typed_config, whose "@type" says which extension it is`, n.Field("name").Describe())
		case strings.HasPrefix(typeName, "envoy.extensions.filters.") && !strings.HasPrefix(typeName, kind):
			val.Reject(typed.Field("@type"), "Envoy rejects %s here", typeName)
		}
	}
}

// terminalNetworkFilters must be last in a filter chain; nonTerminalNetworkFilters must not be.
var (
	terminalNetworkFilters = []string{
		ConnectionManager, networkFilters + "tcp_proxy.v3.TcpProxy", networkFilters + "redis_proxy.v3.RedisProxy", networkFilters + "thrift_proxy.v3.ThriftProxy",
		networkFilters + "dubbo_proxy.v3.DubboProxy", networkFilters + "echo.v3.Echo", networkFilters + "direct_response.v3.Config",
	}
	nonTerminalNetworkFilters = []string{
		NetworkRateLimit, networkFilters + "local_ratelimit.v3.LocalRateLimit", networkFilters + "connection_limit.v3.ConnectionLimit", networkFilters + "rbac.v3.RBAC",
		networkFilters + "ext_authz.v3.ExtAuthz", networkFilters + "set_filter_state.v3.Config", networkFilters + "sni_cluster.v3.SniCluster",
		networkFilters + "mongo_proxy.v3.MongoProxy", networkFilters + "zookeeper_proxy.v3.ZooKeeperProxy", networkFilters + "wasm.v3.Wasm",
	}
)

// validateNetworkFilterOrder validates the order of a chain's filters.
func (val *Validator) validateNetworkFilterOrder(list *tree.Node) {
	for i := range list.Nodes {
		last := i == len(list.Nodes)-1
		switch typeName, _ := list.Nodes[i].Field("typed_config").Typed(); {
		case !last && slices.Contains(terminalNetworkFilters, typeName):
			val.rejectIfComplete(&list.Nodes[i], "the filter is not the last of filters, and Envoy rejects that: put it after the others")
		case last && slices.Contains(nonTerminalNetworkFilters, typeName):
			val.rejectIfComplete(&list.Nodes[i], "the filter is the last of filters, and Envoy rejects that: put tcp_proxy or http_connection_manager after it")
		}
	}
}

// unavailableFilters are in Envoy's API but not in its releases.
var unavailableFilters = []string{httpFilters + "gzip.v3.Gzip", httpFilters + "kill_request.v3.KillRequest"}

// isTerminal reports whether a filter must be the last one of http_filters.
func isTerminal(typeName string, config *tree.Node) bool {
	switch typeName {
	case Router, httpFilters + "mcp_router.v3.McpRouter":
		return true
	case httpFilters + "dynamic_modules.v3.DynamicModuleFilter":
		return config.Field("terminal_filter").Bool(false)
	default:
		return false
	}
}

// validateHTTPFilterOrder validates the order of HTTP filters: the last one must be the router or another terminal
// filter. Excerpts may leave it out.
func (val *Validator) validateHTTPFilterOrder(list *tree.Node) {
	for i := range list.Nodes {
		n := &list.Nodes[i]
		typeName, config := n.Field("typed_config").Typed()
		last, terminal := i == len(list.Nodes)-1, isTerminal(typeName, config)
		switch {
		case terminal && !last:
			val.rejectIfComplete(n, "the router is not the last of http_filters, and Envoy rejects that: put it after the others")
			return
		case isEnvoyMessage(typeName) && isHTTPFilter(typeName) && last && !terminal:
			val.rejectIfComplete(n, "the filter is the last of http_filters, and Envoy rejects that: put the router after it")
		case last && n.Field("disabled").Bool(false):
			val.Reject(n.Field("disabled"), "the filter is the last of http_filters, and Envoy rejects that it is disabled: remove disabled")
		}
	}
}

// isEnvoyMessage reports whether the message is in the schema and not third-party.
func isEnvoyMessage(typeName string) bool {
	return strings.HasPrefix(typeName, "envoy.") && messages.get(typeName) != nil
}

// isHTTPFilter reports whether a message is in a package of HTTP filters.
func isHTTPFilter(typeName string) bool {
	return strings.HasPrefix(typeName, httpFilters) || strings.HasPrefix(typeName, "envoy.extensions.common.matching.")
}

// validateHTTPFilter rejects an HTTP filter without typed_config, or whose @type is not an HTTP filter. Envoy ignores
// such a filter if it is_optional, but not if it is disabled.
func validateHTTPFilter(val *Validator, n *tree.Node) {
	typed, name := n.Field("typed_config"), n.Field("name")
	typeName, _ := typed.Typed()
	isRateLimit := slices.Contains([]string{"envoy.rate_limit", "envoy.filters.http.ratelimit"}, name.Text)
	reported := typed.Exists() && (typed.Kind != tree.Object || len(typed.Nodes) > 0)
	switch {
	case n.Field("is_optional").Bool(false) || typeName == "" && (val.partial || n.Field("config_discovery").Exists() || reported):
	case typeName == "" && isRateLimit:
		val.Reject(n, `Envoy rejects the filter without typed_config: add typed_config: { "@type": type.googleapis.com/%s, domain: ... }`, RateLimit)
	case typeName == "":
		val.Reject(n, `Envoy rejects the filter %s without typed_config, whose "@type" says which filter it is`, rules.Shorten(name.Text))
	case typeName == RateLimitPerRoute || typeName == NetworkRateLimit && isRateLimit:
		val.Reject(typed.Field("@type"), "Envoy has no HTTP filter %s, and rejects it: write type.googleapis.com/%s", typeName, RateLimit)
	case isEnvoyMessage(typeName) && !isHTTPFilter(typeName) || slices.Contains(unavailableFilters, typeName):
		val.Reject(typed.Field("@type"), "Envoy has no HTTP filter %s, and rejects it", typeName)
	}
}

// validatePerRoute rejects the message of a filter in typed_per_filter_config if the filter has a PerRoute message.
func (val *Validator) validatePerRoute(n *tree.Node) {
	for f := range n.Field("typed_per_filter_config").Fields() {
		if typeName, _ := f.Typed(); messages.get(typeName+"PerRoute") != nil {
			val.Reject(f.Field("@type"), "Envoy rejects the message of the filter on a route: write type.googleapis.com/%sPerRoute", typeName)
		}
	}
}

// validateListener validates the address and the filter chains of a listener.
func validateListener(val *Validator, n *tree.Node) {
	socket := n.At("address", "socket_address")
	if at := socket.Field("address"); at.Exists() && at.Text != "" && !isAddress(at) && !socket.Field("resolver_name").Exists() {
		val.Reject(at, "%s: found %s, want an IP address", at.Name, at.Describe())
	}
	if !n.Field("address").Exists() && !n.Field("api_listener").Exists() && !n.Field("internal_listener").Exists() && !val.partial {
		val.rejectIfComplete(n, "Envoy requires the address of a listener: add it")
	}
	seen := map[uint64]bool{}
	seed := maphash.MakeSeed()
	val.validateNetworkFilterOrder(n.At("default_filter_chain", "filters"))
	for chain := range n.Field("filter_chains").Elements() {
		val.validateNetworkFilterOrder(chain.Field("filters"))
		if at := chain.At("transport_socket", "typed_config", "@type"); strings.HasSuffix(at.Text, transportSockets+"tls.v3.UpstreamTlsContext") {
			val.Reject(at, "a listener requires DownstreamTlsContext")
		}
		var h maphash.Hash
		h.SetSeed(seed)
		match := chain.Field("filter_chain_match")
		if len(match.Nodes) == 0 {
			match = &tree.Missing
		}
		match.Hash(&h)
		if seen[h.Sum64()] && !n.Field("filter_chain_matcher").Exists() {
			val.Reject(chain, "an earlier filter chain has the same filter_chain_match, and Envoy rejects that: remove one")
		}
		seen[h.Sum64()] = true
	}
}

// validateServerNames rejects wildcards anywhere but at the start of a name.
func validateServerNames(val *Validator, n *tree.Node) {
	for at := range n.Field("server_names").Elements() {
		if strings.Contains(strings.TrimPrefix(at.Text, "*."), "*") && at.Text != "*" {
			val.Reject(at, "server_names: found %s, want a name, or one that begins with *.", at.Describe())
		}
	}
}

// validateBootstrap rejects duplicate names of clusters and runtime layers.
func validateBootstrap(val *Validator, n *tree.Node) {
	val.rejectDuplicates(n.At("static_resources", "clusters"), identity, "name")
	layers := n.At("layered_runtime", "layers")
	val.rejectDuplicates(layers, identity, "name")
	admins := 0
	for layer := range layers.Elements() {
		if at := layer.Field("admin_layer"); at.Exists() {
			if admins++; admins > 1 {
				val.Reject(at, "%s: a second one, and Envoy rejects that: remove one", at.Name)
			}
		}
	}
}

// validateCluster validates the fields that depend on the type of a cluster.
func validateCluster(val *Validator, n *tree.Node) {
	kind := n.Field("type").Enum("STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST")
	if typed := n.Field("type").Exists(); !n.Field("cluster_type").Exists() && (typed || !val.partial) {
		val.validateEndpoints(n, kind)
		policy := n.Field("lb_policy")
		provided := policy.Enum("ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH", "RANDOM", "", "MAGLEV", "CLUSTER_PROVIDED") == "CLUSTER_PROVIDED"
		switch {
		case kind == "EDS" && !n.At("eds_cluster_config", "eds_config").Exists() && !val.partial:
			val.rejectIfComplete(n, "a cluster of type EDS needs eds_cluster_config with eds_config: add it")
		case provided && kind != "ORIGINAL_DST":
			val.Reject(policy, "%s: CLUSTER_PROVIDED is not for a cluster of type %s, and Envoy rejects it: remove it", policy.Name, kind)
		case kind == "ORIGINAL_DST" && policy.Exists() && !provided:
			val.Reject(policy, "%s: found %s, and a cluster of type ORIGINAL_DST needs CLUSTER_PROVIDED", policy.Name, policy.Describe())
		}
	}
	if at := n.At("transport_socket", "typed_config", "@type"); strings.HasSuffix(at.Text, transportSockets+"tls.v3.DownstreamTlsContext") {
		val.Reject(at, "a cluster requires UpstreamTlsContext")
	}
	ring := n.Field("ring_hash_lb_config")
	if most := ring.Field("maximum_ring_size"); most.Exists() && most.Uint(0) < ring.Field("minimum_ring_size").Uint(1024) {
		val.Reject(most, "%s: found %s, want no less than minimum_ring_size", most.Name, most.Describe())
	}
}

// validateEndpoints rejects host names in a cluster of type STATIC.
func (val *Validator) validateEndpoints(n *tree.Node, kind string) {
	if kind != "STATIC" {
		return
	}
	for locality := range n.At("load_assignment", "endpoints").Elements() {
		for endpoint := range locality.Field("lb_endpoints").Elements() {
			socket := endpoint.At("endpoint", "address", "socket_address")
			switch at := socket.Field("address"); {
			case socket.Field("resolver_name").Exists():
			case at.Exists() && at.Text != "" && !isAddress(at):
				val.rejectIfComplete(at, "the cluster %s is of type STATIC, whose addresses are numbers, and Envoy rejects the name %s: set type: STRICT_DNS", n.Field("name").Describe(), at.Describe())
			case socket.Field("named_port").Exists():
				val.Reject(socket.Field("named_port"), "a cluster of type STATIC requires port_value")
			}
		}
	}
}

// validateStatuses validates ranges of HTTP statuses.
func validateStatuses(val *Validator, n *tree.Node) {
	for _, list := range []string{"expected_statuses", "retriable_statuses"} {
		for at := range n.Field(list).Elements() {
			if start, end := parseAmount(at.Field("start").Text), parseAmount(at.Field("end").Text); start >= end || start < 100 || end > 600 {
				val.Reject(at, "%s: want a range from 100 to 600, whose end is beyond its start", list)
			}
		}
	}
}

// validateConfigSource validates the settings of an api_config_source.
func validateConfigSource(val *Validator, n *tree.Node) {
	source := n.Field("api_config_source")
	kind := source.Field("api_type").Enum("DEPRECATED_AND_UNAVAILABLE_DO_NOT_USE", "REST", "GRPC")
	switch {
	case !source.Exists() || val.partial:
	case kind == "GRPC" && len(source.Field("grpc_services").Nodes) == 0:
		val.Reject(source, "api_type GRPC needs grpc_services: add one")
	case kind == "REST" && !source.Field("refresh_delay").Exists():
		val.Reject(source, "api_type REST needs refresh_delay: add it")
	}
}
