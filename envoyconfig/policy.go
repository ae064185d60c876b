package envoyconfig

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// policy is an element of a rate_limits list, from which Envoy makes one descriptor.
type policy struct {
	node    *tree.Node
	stage   uint64
	actions []*action
	// streamDone is true if the descriptor is sent at the end of the stream.
	streamDone bool
	// command and argument are those of hits_addend.format, and readValues the metadata that it reads.
	command, argument string
	readValues        []metadataValue
}

// policyList contains the elements of a rate_limits list that have the same stage. A route sends all of them or none.
type policyList struct {
	stage    uint64
	policies []*policy
	// start and end are the first elements that are sent at the start and at the end of a stream; nil if there is none.
	start, end *policy
	// readsRoute is true if an action depends on the route.
	readsRoute bool
}

// newPolicies returns the elements of a list, usually as one policyList.
func newPolicies(list *tree.Node) (all []*policyList) {
	for n := range list.Elements() {
		p := &policy{
			node: n, stage: n.Field("stage").Uint(0), streamDone: n.Field("apply_on_stream_done").Bool(false),
			actions: tree.Map(n.Field("actions"), newAction),
		}
		p.readFormat()
		i := slices.IndexFunc(all, func(l *policyList) bool { return l.stage == p.stage })
		if i < 0 {
			i = len(all)
			all = append(all, &policyList{stage: p.stage})
		}
		l := all[i]
		l.policies = append(l.policies, p)
		if p.streamDone {
			l.end = cmp.Or(l.end, p)
		} else {
			l.start = cmp.Or(l.start, p)
		}
		l.readsRoute = l.readsRoute || slices.ContainsFunc(p.actions, (*action).readsRoute)
	}
	return all
}

// readsRoute reports whether the action reads the metadata of the route, or that of tokens which a filter verifies for
// some paths.
func (a *action) readsRoute() bool {
	isMetadata := a.kind == "metadata" || a.kind == "dynamic_metadata"
	return isMetadata &&
		(metadataSource(a.node) == "ROUTE_ENTRY" || a.node.At("metadata_key", "key").Text == namespaces[jwtAuthn])
}

// newAction reads an action of Envoy's API. The entry of an unsupported action is unknown.
func newAction(n *tree.Node) *action {
	why := "an action that sluice does not support"
	for child := range n.Fields() {
		for _, known := range knownActions {
			if child.Kind != tree.Null && child.HasName(known.kind) {
				a := &action{kind: known.kind, label: known.kind, node: child, form: entryForm{
					key: cmp.Or(child.Field("descriptor_key").Text, known.key), anyValue: true, optional: child.Field("skip_if_absent").Bool(false),
				}}
				known.read(a)
				return a
			}
		}
	}
	if len(n.Nodes) > 0 {
		why = "action " + n.Nodes[0].Name
	}
	if n.Field("extension").Exists() {
		why = "extension " + n.At("extension", "name").Text
		if typeName, config := n.At("extension", "typed_config").Typed(); typeName == expression &&
			config.Field("descriptor_key").Text != "" {
			return &action{kind: expression, node: config, value: unknownOutcome(why), form: entryForm{
				key: config.Field("descriptor_key").Text, anyValue: true, optional: config.Field("skip_if_error").Bool(false),
			}}
		}
	}
	return &action{node: n, form: entryForm{anyKey: true, anyValue: true, optional: true}, value: unknownOutcome(why)}
}

// knownActions are the supported actions by their field names in Envoy's API. key is the default of descriptor_key.
var knownActions = []struct {
	kind, key string
	read      func(*action)
}{
	{"generic_key", "generic_key", readGenericKey},
	{"source_cluster", "source_cluster", readSourceCluster},
	{"destination_cluster", "destination_cluster", readDestinationCluster},
	{"request_headers", "", readRequestHeaders},
	{"header_value_match", "header_match", readHeaderValueMatch},
	{"query_parameters", "", readQueryParameters},
	{"query_parameter_value_match", "query_match", readQueryParameterValueMatch},
	{"remote_address", "remote_address", readRemoteAddress},
	{"masked_remote_address", "masked_remote_address", readMaskedRemoteAddress},
	{"remote_address_match", "remote_address_match", readRemoteAddressMatch},
	{"metadata", "", readMetadata},
	{"dynamic_metadata", "", readMetadata},
}
