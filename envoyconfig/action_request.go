package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

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
		return outcome{value: value, present: ok, absent: fmt.Sprintf("no query parameter %q", parameter), unknown: query.unknown}
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
	v4, v6 := a.node.Field("v4_prefix_mask_len").Uint(32), a.node.Field("v6_prefix_mask_len").Uint(128)
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
			if x.origin.none == "" {
				return outcome{unknown: x.origin.by + "; pass its value with --metadata " + name + "=VALUE"}
			}
			absent = x.origin.none
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
