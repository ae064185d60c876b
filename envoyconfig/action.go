package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// action makes one entry of a descriptor.
type action struct {
	// kind is the field name of the action in Envoy's API, and node its value.
	kind string
	node *tree.Node
	// label precedes the reason if the value is unknown; empty if the reason needs none.
	label string
	form  entryForm
	value func(x *exchange) outcome
	// formatted is true if Envoy reads descriptor_value as a format string, whatever the runtime has.
	formatted bool
}

// entryForm describes the entries that an action can make, independently of a request.
type entryForm struct {
	key string
	// anyKey is true if the key is unknown; anyValue is true if the value varies or is unknown.
	anyKey, anyValue bool
	value            string
	// optional is true if Envoy sends the descriptor without the entry when the value is absent.
	optional bool
}

// outcome is the result of an action for a request.
type outcome struct {
	value string
	// present is true if the action makes an entry. If it makes none and absent is empty, Envoy sends the descriptor
	// without the entry.
	present bool
	// absent is the reason why Envoy does not send the descriptor; empty if Envoy sends it.
	absent string
	// unknown is the reason why the result cannot be computed.
	unknown string
}

// entry computes the entry for a request.
func (a *action) entry(x *exchange) outcome {
	switch result := a.value(x); {
	case result.unknown != "" && a.label != "":
		return outcome{unknown: a.label + ": " + result.unknown}
	case result.unknown != "":
		return outcome{unknown: result.unknown}
	case result.present:
		return outcome{value: result.value, present: true}
	case a.form.optional:
		return outcome{}
	default:
		return outcome{absent: result.absent}
	}
}

// unknownOutcome returns the value function of an action whose result cannot be computed.
func unknownOutcome(why string) func(*exchange) outcome {
	return func(*exchange) outcome { return outcome{unknown: why} }
}

// setFixedValue makes the action return its descriptor_value for requests that match; all match if matches is nil.
// formatted is true if the value is a format string regardless of the runtime.
func setFixedValue(a *action, formatted bool, matches func(x *exchange) (verdict, string)) {
	at := a.node.Field("descriptor_value")
	a.form.value = at.Text
	a.form.anyValue = strings.Contains(at.Text, "%")
	a.formatted = formatted
	a.value = func(x *exchange) outcome {
		if matches != nil {
			if v, why := matches(x); v.unknown != "" || !v.yes {
				return outcome{unknown: v.unknown, absent: why}
			}
		}
		if a.form.anyValue && (formatted || x.manager.runtime.mayFormatValues()) {
			return outcome{unknown: "the value " + at.Describe() + " is a format string"}
		}
		return outcome{value: at.Text, present: true}
	}
}

func readGenericKey(a *action) { setFixedValue(a, false, nil) }

func readRemoteAddressMatch(a *action) {
	setFixedValue(a, true, addressMatcher(a.node.Field("address_matcher")))
}

func readHeaderValueMatch(a *action) {
	matchers := newHeaderMatchers(a.node.Field("headers"))
	setMatchValue(a, "headers", matchers.match)
}

func readQueryParameterValueMatch(a *action) {
	matchers := newQueryMatchers(a.node.Field("query_parameters"))
	setMatchValue(a, "query parameters", func(x *exchange) verdict { return matchers.match(x.decodedQuery()) })
}

// setMatchValue makes the action return its descriptor_value if the match result equals expect_match.
func setMatchValue(a *action, parts string, match func(x *exchange) verdict) {
	expected := a.node.Field("expect_match").Bool(true)
	not := ""
	if expected {
		not = "not "
	}
	setFixedValue(a, false, func(x *exchange) (verdict, string) {
		return match(x).equals(expected), "the " + parts + " do " + not + "match"
	})
}

// addressMatcher returns a function that reports whether the client's address is in one of the ranges.
func addressMatcher(n *tree.Node) func(x *exchange) (verdict, string) {
	networks, wrong := readNetworks(n.Field("ranges"))
	invert := n.Field("invert_match").Bool(false)
	return func(x *exchange) (verdict, string) {
		remote, unknown := x.clientAddress()
		if wrong != "" {
			unknown = wrong
		}
		return verdict{yes: isWithin(networks, remote) != invert, unknown: unknown}, remote.String() + " does not match"
	}
}

// readRequestHeaders makes the action return the value of a request header.
func readRequestHeaders(a *action) {
	header := a.header()
	a.label += " " + header
	a.value = func(x *exchange) outcome {
		values, unknown := x.header(header)
		switch {
		case unknown != "":
			return outcome{unknown: unknown}
		case len(values) > 1 && !strings.HasPrefix(header, "x-"):
			// Envoy joins the values of some headers and keeps others separate.
			return outcome{unknown: "the request has it more than once"}
		case len(values) > 0:
			return outcome{value: values[0], present: true}
		default:
			return outcome{absent: fmt.Sprintf("no header %q", header)}
		}
	}
}

// header returns the name of the header that request_headers reads, in lower case.
func (a *action) header() string { return strings.ToLower(a.node.Field("header_name").Text) }

// readQueryParameters makes the action return the value of a query parameter.
func readQueryParameters(a *action) {
	parameter := a.node.Field("query_parameter_name").Text
	a.label += " " + parameter
	a.value = func(x *exchange) outcome {
		query := x.decodedQuery()
		value, ok := query.first(parameter)
		return outcome{
			value: value, present: ok, absent: fmt.Sprintf("no query parameter %q", parameter), unknown: query.unknown,
		}
	}
}

// readRemoteAddress makes the action return the client's address.
func readRemoteAddress(a *action) {
	a.value = func(x *exchange) outcome {
		remote, unknown := x.clientAddress()
		return outcome{value: remote.String(), present: true, unknown: unknown}
	}
}

// readMaskedRemoteAddress makes the action return the client's network.
func readMaskedRemoteAddress(a *action) {
	v4 := a.node.Field("v4_prefix_mask_len").Uint(32)
	v6 := a.node.Field("v6_prefix_mask_len").Uint(128)
	a.value = func(x *exchange) outcome {
		remote, unknown := x.clientAddress()
		if unknown != "" {
			return outcome{unknown: unknown}
		}
		bits := v6
		if remote.Is4() {
			bits = v4
		}
		network, err := remote.Prefix(int(min(bits, 1000)))
		if err != nil {
			return outcome{unknown: err.Error()}
		}
		return outcome{value: network.String(), present: true}
	}
}

// readSourceCluster makes the action return node.cluster of the bootstrap.
func readSourceCluster(a *action) {
	a.value = func(x *exchange) outcome {
		if !x.nodeCluster.Exists() {
			return outcome{unknown: "there is no node.cluster, so Envoy's flag --service-cluster may set it"}
		}
		return outcome{value: x.nodeCluster.Text, present: true}
	}
}

// readDestinationCluster makes the action return the upstream cluster of the request.
func readDestinationCluster(a *action) {
	a.value = func(x *exchange) outcome {
		name, unknown := x.upstreamCluster()
		return outcome{value: name, present: true, unknown: unknown}
	}
}

// readMetadata makes the action return a text from the metadata of another filter or of the route.
func readMetadata(a *action) {
	at := a.node.Field("metadata_key")
	name := metadataName(at)
	a.label = "metadata " + name
	source := metadataSource(a.node)
	if strings.HasPrefix(source, "CLUSTER") {
		a.value = unknownOutcome("source " + source + " is not supported")
		return
	}
	a.value = func(x *exchange) outcome {
		value, given := x.Metadata[name]
		absent := fmt.Sprintf("no string in metadata %q", name)
		switch {
		case source == "ROUTE_ENTRY":
			value = entryMetadata(x.routeNode, at)
		case !given:
			if x.origin.whyUnset == "" {
				return outcome{unknown: x.origin.by + "; pass its value with --metadata " + name + "=VALUE"}
			}
			absent = x.origin.whyUnset
		}
		if value == "" {
			value = a.node.Field("default_value").Text
		}
		return outcome{value: value, present: value != "", absent: absent}
	}
}

// metadataSource returns which metadata an action reads.
func metadataSource(n *tree.Node) string {
	return n.Field("source").Enum("DYNAMIC", "ROUTE_ENTRY", "CLUSTER_ENTRY", "CLUSTER_LOCALITY_ENTRY")
}

func metadataPath(at *tree.Node) []string {
	return tree.Map(at.Field("path"), func(segment *tree.Node) string { return segment.Field("key").Text })
}

// metadataName returns a metadata key in the form of --metadata: namespace:path, with dots.
func metadataName(at *tree.Node) string {
	return at.Field("key").Text + ":" + strings.Join(metadataPath(at), ".")
}

// entryMetadata returns the text at a key of the metadata of a route or a cluster, "" if there is none.
func entryMetadata(n, at *tree.Node) string {
	found := n.At("metadata", "filter_metadata").Value(at.Field("key").Text)
	for _, key := range metadataPath(at) {
		found = found.Value(key)
	}
	if found.Kind != tree.Text {
		return ""
	}
	return found.Text
}
