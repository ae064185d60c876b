package envoyconfig

import (
	"fmt"
	"strings"
)

// metadata is a text that another filter, or the route, has put into metadata.
type metadata struct {
	node *node
	key  string
	// name is where the text is, as --metadata names it: namespace:path, with dots.
	name     string
	optional bool
	ofRoute  bool
}

func newMetadata(n *node) action {
	source := n.field("source").enum("DYNAMIC", "ROUTE_ENTRY", "CLUSTER_ENTRY", "CLUSTER_LOCALITY_ENTRY")
	a := &metadata{
		node: n, key: n.field("descriptor_key").str(),
		name:     metadataName(n.field("metadata_key")),
		optional: n.field("skip_if_absent").yes(false),
		ofRoute:  source == "ROUTE_ENTRY",
	}
	if strings.HasPrefix(source, "CLUSTER") {
		return &opaque{name: "metadata " + a.name, made: a.shape(), why: "source " + source + " is not looked at"}
	}
	return a
}

// metadataName is a metadata key as --metadata names it.
func metadataName(at *node) string {
	var path []string
	for _, segment := range at.field("path").elements() {
		path = append(path, segment.field("key").str())
	}
	return at.field("key").str() + ":" + strings.Join(path, ".")
}

func (a *metadata) entry(x *exchange) outcome {
	var value string
	if a.ofRoute {
		value = a.routes(x.route.node)
	} else {
		given, ok := x.Metadata[a.name]
		if !ok {
			return outcome{unknown: fmt.Sprintf("metadata %s: another filter sets it; --metadata %s=VALUE says what to", a.name, a.name)}
		}
		value = given
	}
	if value == "" {
		value = a.node.field("default_value").str()
	}
	switch {
	case value != "":
		return outcome{key: a.key, value: value, has: true}
	case a.optional:
		return outcome{}
	default:
		return outcome{absent: fmt.Sprintf("no text in metadata %q", a.name)}
	}
}

// routes returns the text in the route's own metadata, "" if there is none.
func (a *metadata) routes(r *node) string {
	at := r.at("metadata", "filter_metadata").named(a.node.at("metadata_key", "key").str())
	for _, segment := range a.node.at("metadata_key", "path").elements() {
		at = at.named(segment.field("key").str())
	}
	if at.kind != text {
		return ""
	}
	return at.text
}

func (a *metadata) shape() shape {
	return shape{key: a.key, anyValue: true, optional: a.optional}
}
