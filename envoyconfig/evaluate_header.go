package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

var (
	// alwaysPresent are headers that every request has.
	alwaysPresent = []string{":authority", ":method", ":path", ":scheme", "host", "x-request-id", "x-forwarded-proto"}
	// removedHeaders are headers that Envoy removes from external requests, and edgeHeaders those that it removes with
	// use_remote_address, as measured on Envoy 1.40.
	removedHeaders = []string{
		"connection", "keep-alive", "proxy-connection", "x-envoy-expected-rq-timeout-ms", "x-envoy-internal", "x-envoy-max-retries",
		"x-envoy-upstream-rq-timeout-ms", "x-envoy-force-trace", "x-envoy-ip-tags", "x-envoy-retry-on", "x-envoy-upstream-alt-stat-name",
	}
	edgeHeaders = []string{"x-envoy-original-path", "x-envoy-original-host", "x-envoy-downstream-service-cluster", "x-envoy-decorator-operation"}
)

// impossibleHeader returns why no request has a header when it reaches a filter; empty if a request may have it.
func (m *manager) impossibleHeader(f *filter, name string) string {
	const valid = "!#$%&'*+-.^_|~`0123456789abcdefghijklmnopqrstuvwxyz"
	switch {
	case strings.HasPrefix(name, ":"):
		if !slices.Contains([]string{":authority", ":method", ":path", ":scheme", ":protocol"}, name) {
			return fmt.Sprintf("no request has a pseudo-header %q", name)
		}
		return ""
	case strings.Trim(name, valid) != "":
		return fmt.Sprintf("no request has a header %q, since %q cannot be in the name of a header", name,
			strings.Trim(name, valid)[:1])
	case m.fragments:
		return ""
	}
	why := m.removalByManager(name)
	for _, other := range m.before(f) {
		switch {
		case other.disabled:
		case other.removesHeader(name) && len(other.perRouteStrings) == 0:
			why = fmt.Sprintf("the filter at %v removes the header %s before", other.node.Pos(), name)
		case other.mayAddHeader(name):
			why = ""
		}
	}
	return why
}

// removalByManager returns why no request has a header when it reaches the first filter; empty if a request may have it.
func (m *manager) removalByManager(name string) string {
	n := m.node
	underscores := n.At("common_http_protocol_options", "headers_with_underscores_action")
	edge := n.Field("use_remote_address").Bool(false)
	external := !n.Field("internal_address_config").Exists()
	switch action := underscores.Enum("ALLOW", "REJECT_REQUEST", "DROP_HEADER"); {
	case strings.Contains(name, "_") && action != "ALLOW":
		return fmt.Sprintf("no request has the header %s, since headers_with_underscores_action, at %v, is %s", name,
			underscores.Pos(), action)
	case external && (slices.Contains(removedHeaders, name) || edge && slices.Contains(edgeHeaders, name)),
		name == "x-forwarded-client-cert" && n.Field("forward_client_cert_details").Enum("SANITIZE") == "SANITIZE":
		return "Envoy removes the header " + name + " from the requests of clients"
	}
	if external && m.table != nil {
		if only := m.table.internalOnly(name); only.Exists() {
			return fmt.Sprintf("internal_only_headers, at %v, removes the header %s from external requests, and without internal_address_config all are external", only.Pos(), name)
		}
	}
	for extension := range n.Field("early_header_mutation_extensions").Elements() {
		if typeName, config := extension.Field("typed_config").Typed(); typeName == earlyHeaderMutation &&
			removesHeader(config.Field("mutations"), name) {
			return fmt.Sprintf("early_header_mutation_extensions, at %v, removes the header %s", extension.Pos(), name)
		}
	}
	return ""
}

// setsPlainScheme reports whether the manager sets a header with the scheme of the connection, and accepts no TLS.
func (m *manager) setsPlainScheme(name string) bool {
	n := m.node
	return (name == ":scheme" || name == "x-forwarded-proto") && m.plaintext &&
		n.Field("use_remote_address").Bool(false) && n.Field("xff_num_trusted_hops").Uint(0) == 0 &&
		!n.Field("scheme_header_transformation").Exists() && !n.Field("early_header_mutation_extensions").Exists()
}

// internalOnly returns the element of internal_only_headers that names a header, or missing.
func (t *table) internalOnly(name string) *tree.Node {
	for n := range t.node.Field("internal_only_headers").Elements() {
		if strings.EqualFold(n.Text, name) {
			return n
		}
	}
	return &tree.Missing
}

// mayAddHeader reports whether a filter may add a request header.
func (f *filter) mayAddHeader(name string) bool {
	switch f.typeName {
	case extAuthz, jwtAuthn:
		return true
	case headerMutation:
		return setsHeader(f, name) || len(f.perRouteStrings) > 0
	}
	return setsHeader(f, name) || f.writesTo("") == mayWrite
}

// removesHeader reports whether a filter removes a request header.
func (f *filter) removesHeader(name string) (removes bool) {
	switch f.typeName {
	case headerMutation:
		return removesHeader(f.config.At("mutations", "request_mutations"), name)
	case headerToMetadata:
		for rule := range f.config.Field("request_rules").Elements() {
			removes = removes || rule.Field("remove").Bool(false) && strings.EqualFold(rule.Field("header").Text, name)
		}
	}
	return removes
}

// removesHeader reports whether a list of header mutations removes a header.
func removesHeader(mutations *tree.Node, name string) (removes bool) {
	for mutation := range mutations.Elements() {
		removes = strings.EqualFold(mutation.Field("remove").Text, name) ||
			removes && !strings.EqualFold(mutation.At("append", "header", "key").Text, name)
	}
	return removes
}

// allElements reports whether f is true for all elements of a list.
func allElements(list *tree.Node, f func(*tree.Node) bool) bool {
	for n := range list.Elements() {
		if !f(n) {
			return false
		}
	}
	return true
}

// isAlwaysPresent reports whether a matcher requires only the presence of a header that every request has.
func isAlwaysPresent(n *tree.Node) bool {
	return n.Field("present_match").Bool(false) && !n.Field("invert_match").Bool(false) &&
		slices.Contains(alwaysPresent, strings.ToLower(n.Field("name").Text))
}

// impossibleValue returns why an action of a kind never has a value; empty if it may. header is that of request_headers.
// The value may contain the wildcard *.
func impossibleValue(kind, header, value string) string {
	hasLength := strings.ContainsAny(value, "/*")
	switch {
	case header == ":method" && strings.ToUpper(value) != value:
		return "methods are in upper case"
	case header == ":path" && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "*"):
		return "a path begins with /"
	case kind == "masked_remote_address" && !hasLength:
		return "the value of masked_remote_address ends with the length of its network, such as 192.0.2.0/24: use cidr"
	case kind == "remote_address" && strings.Contains(value, "/"):
		return "remote_address is an address without a length: use cidr"
	}
	return ""
}
