package envoyconfig

import (
	"encoding/hex"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// exchange is a request as a connection manager handles it.
type exchange struct {
	Request

	// manager is the connection manager, managerNode its configuration, and routeNode the selected route once it is known.
	manager                *manager
	managerNode, routeNode *tree.Node
	// origin describes the metadata that the current action reads.
	origin metadataOrigin
	// earlyMutation is the reason why headers may change before routing; empty if they do not.
	earlyMutation string
	// nodeCluster is node.cluster of the bootstrap, or missing.
	nodeCluster *tree.Node
}

// clientValues returns the values of a header as the client sent it.
func (x *exchange) clientValues(name string) []string {
	var values []string
	if x.Logged != nil {
		if value, ok, _ := x.Logged(name); ok {
			values = append(values, value)
		}
		return values
	}
	for _, h := range x.Headers {
		if h.Name == name {
			values = append(values, h.Value)
		}
	}
	return values
}

// header returns the values of a header as filters see it. unknown is the reason if the connection manager sets it to
// a value that cannot be computed.
func (x *exchange) header(name string) (values []string, unknown string) {
	m := x.managerNode
	if x.Logged != nil && !strings.HasPrefix(name, "x-envoy-") {
		if name == "host" {
			name = ":authority"
		}
		return x.clientValues(name), x.unloggedReason(name)
	}
	if x.earlyMutation != "" {
		return nil, x.earlyMutation
	}
	switch name {
	case ":method":
		return []string{x.Method}, ""
	case ":authority", "host":
		authority, unknown := x.authority()
		return []string{authority}, unknown
	case ":path":
		return []string{x.Path}, x.unknownPathReason()
	case ":scheme", "x-forwarded-proto":
		if m.Field("scheme_header_transformation").Exists() {
			return nil, "scheme_header_transformation may change it"
		}
		if len(x.clientValues("x-forwarded-proto")) > 0 {
			return nil, "whether Envoy trusts x-forwarded-proto depends on the peer"
		}
		return []string{x.Scheme}, ""
	}
	if x.isSetByEnvoy(name) {
		return nil, "Envoy sets it"
	}
	action := m.At("common_http_protocol_options", "headers_with_underscores_action").Enum("ALLOW", "REJECT_REQUEST",
		"DROP_HEADER")
	if strings.Contains(name, "_") && action != "ALLOW" {
		return nil, "headers_with_underscores_action is " + action
	}
	if x.manager.table.internalOnly(name).Exists() {
		if unknown := x.mayBeInternal(); unknown != "" {
			return nil, "it is one of internal_only_headers: " + unknown
		}
		return nil, ""
	}
	return x.clientValues(name), ""
}

// earlyMutationReason returns why headers may change before routing; empty if they do not.
func (x *exchange) earlyMutationReason() string {
	if x.Logged == nil && len(x.managerNode.Field("early_header_mutation_extensions").Nodes) > 0 {
		return "early_header_mutation_extensions may change it"
	}
	return ""
}

// authority returns the host as routes and filters see it, after the connection manager's changes.
func (x *exchange) authority() (authority, unknown string) {
	authority = x.Authority
	if x.Logged != nil {
		return authority, x.unloggedReason(":authority")
	}
	if x.earlyMutation != "" {
		return "", x.earlyMutation
	}
	m := x.managerNode
	if m.Field("strip_trailing_host_dot").Bool(false) {
		host, port, hasPort := strings.Cut(authority, ".:")
		switch {
		case strings.HasSuffix(authority, "."):
			authority = authority[:len(authority)-1]
		case hasPort && !strings.Contains(port, "."):
			authority = host + ":" + port
		}
	}
	i := strings.LastIndexByte(authority, ':')
	if i <= strings.LastIndexByte(authority, ']') || i < 0 {
		return authority, "" // without a port
	}
	if _, err := strconv.ParseUint(authority[i+1:], 10, 32); err != nil {
		return authority, ""
	}
	switch {
	case m.Field("strip_any_host_port").Bool(false):
		return authority[:i], ""
	case m.Field("strip_matching_host_port").Bool(false):
		return "", "strip_matching_host_port strips the port if it is the listener's"
	default:
		return authority, ""
	}
}

// isSetByEnvoy reports whether the connection manager may set a header.
func (x *exchange) isSetByEnvoy(name string) bool {
	m := x.managerNode
	switch name {
	case "x-forwarded-for":
		return m.Field("use_remote_address").Bool(false) && !m.Field("skip_xff_append").Bool(false)
	case "x-request-id", "x-forwarded-client-cert", "connection", "keep-alive", "proxy-connection", "te",
		"transfer-encoding", "upgrade", "expect":
		return true
	case "x-forwarded-port", "via":
		return m.Field("append_x_forwarded_port").Bool(false) || m.Field("via").Exists()
	case "user-agent":
		return m.Field("add_user_agent").Bool(false)
	default:
		return strings.HasPrefix(name, "x-envoy-")
	}
}

// unloggedReason returns why the log does not contain a header; empty if it does or if the request is not from a log.
func (x *exchange) unloggedReason(name string) string {
	if x.Logged == nil {
		return ""
	}
	_, _, unknown := x.Logged(name)
	return unknown
}

// unknownPathReason returns why the path that filters see is unknown; empty if it is known. The connection manager may
// rewrite a path that is not in normal form.
func (x *exchange) unknownPathReason() string {
	m := x.managerNode
	if x.Logged != nil {
		return x.unloggedReason(":path")
	}
	if x.earlyMutation != "" {
		return x.earlyMutation
	}
	path := x.pathOnly()
	if m.Field("merge_slashes").Bool(false) && strings.Contains(path, "//") {
		return "merge_slashes changes this path"
	}
	if action := m.Field("path_with_escaped_slashes_action").Enum("IMPLEMENTATION_SPECIFIC_DEFAULT", "KEEP_UNCHANGED"); action != "IMPLEMENTATION_SPECIFIC_DEFAULT" && action != "KEEP_UNCHANGED" {
		for _, escaped := range []string{"%2f", "%2F", "%5c", "%5C"} {
			if strings.Contains(path, escaped) {
				return "path_with_escaped_slashes_action changes this path"
			}
		}
	}
	if m.Field("path_normalization_options").Exists() {
		return "path_normalization_options may change it"
	}
	if m.Field("normalize_path").Bool(false) && !isNormal(path) {
		return "normalize_path changes this path"
	}
	return ""
}

// isNormal reports whether normalize_path leaves a path unchanged: it has no "." or ".." segments, and nothing that
// would be percent-encoded or decoded.
func isNormal(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	return strings.Trim(path, "/-._~!$&'()*+,;=:@0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func (x *exchange) pathOnly() string {
	path, _, _ := strings.Cut(x.Path, "?")
	return path
}

// clientAddress returns the client's address as determined by Envoy.
func (x *exchange) clientAddress() (a netip.Addr, unknown string) {
	m := x.managerNode
	if m.Field("original_ip_detection_extensions").Exists() {
		return a, "original_ip_detection_extensions determine it"
	}
	if x.Client.IsValid() {
		return x.Client, ""
	}
	if unknown = x.unloggedReason("x-forwarded-for"); unknown != "" {
		return a, unknown
	}
	hops := m.Field("xff_num_trusted_hops").Uint(0)
	trusted := true
	forwarded := x.forwardedFor()
	if m.Field("use_remote_address").Bool(false) {
		// The peer is the nearest trusted proxy.
		trusted = hops > 0
		hops = max(hops, 1) - 1
	}
	if trusted {
		if a, ok := fromForwarded(forwarded, hops); ok {
			return a, ""
		}
	}
	if !x.Remote.IsValid() {
		return a, x.unknownRemoteReason()
	}
	return x.Remote, ""
}

// fromForwarded returns an address of x-forwarded-for, counted from the end: the last one if skip is 0.
func fromForwarded(value string, skip uint64) (netip.Addr, bool) {
	for ; skip > 0; skip-- {
		i := strings.LastIndexByte(value, ',')
		if i < 0 {
			return netip.Addr{}, false
		}
		value = value[:i]
	}
	a, err := netip.ParseAddr(strings.Trim(value[strings.LastIndexByte(value, ',')+1:], " \t"))
	return a, err == nil && a.Zone() == ""
}

// upstreamCluster returns the upstream cluster of the request, "" if it has none.
func (x *exchange) upstreamCluster() (name, unknown string) {
	action := x.routeNode.Field("route")
	if cluster := action.Field("cluster"); cluster.Exists() {
		return cluster.Text, ""
	}
	if header := action.Field("cluster_header").Text; header != "" {
		values, unknown := x.header(strings.ToLower(header))
		if unknown != "" || len(values) == 0 {
			return "", unknown
		}
		return values[0], ""
	}
	if names := tree.Map(action.At("weighted_clusters", "clusters"), func(n *tree.Node) string { return n.Field("name").Text }); len(names) == 1 && names[0] != "" {
		return names[0], ""
	}
	return "", "the route does not name a single cluster"
}

// query contains the query parameters of a request.
type query struct {
	names, values []string
	unknown       string
}

func (q query) first(name string) (string, bool) {
	for i := range q.names {
		if q.names[i] == name {
			return q.values[i], true
		}
	}
	return "", false
}

// rawQuery returns the query parameters as sent.
func (x *exchange) rawQuery() query {
	q := query{unknown: x.unloggedReason(":path")}
	_, text, ok := strings.Cut(x.Path, "?")
	if !ok {
		return q
	}
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		q.names = append(q.names, name)
		q.values = append(q.values, value)
	}
	return q
}

// decodedQuery returns the percent-decoded query parameters.
func (x *exchange) decodedQuery() query {
	q := x.rawQuery()
	for i := range q.names {
		q.names[i] = decodePercent(q.names[i])
		q.values[i] = decodePercent(q.values[i])
	}
	return q
}

var percentCode = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// decodePercent decodes %XX sequences and keeps invalid ones.
func decodePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	return percentCode.ReplaceAllStringFunc(s, func(code string) string {
		decoded, _ := hex.DecodeString(code[1:]) // always valid
		return string(decoded)
	})
}
