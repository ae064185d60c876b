package envoyconfig

// policy is an element of a rate_limits list: how one descriptor is made.
type policy struct {
	node    *node
	stage   uint64
	actions []action
	// late says that the descriptor is sent at the end of the stream.
	late bool
}

func newPolicies(l *node) []*policy {
	var all []*policy
	for i := range l.elements() {
		n := &l.nodes[i]
		p := &policy{node: n, stage: n.field("stage").uint(0), late: n.field("apply_on_stream_done").yes(false)}
		actions := n.field("actions").elements()
		for j := range actions {
			p.actions = append(p.actions, newAction(&actions[j]))
		}
		all = append(all, p)
	}
	return all
}

// action makes one entry of a descriptor.
type action interface {
	// entry makes the entry for a request.
	entry(x *exchange) outcome
	// shape is what entry can make for any request.
	shape() shape
}

// outcome is what an action made of a request.
type outcome struct {
	key, value string
	// has says that there is an entry; an action may add none, and the descriptor is sent
	// all the same.
	has bool
	// absent says why there is no descriptor, where there is none.
	absent string
	// unknown says why it cannot be known what the action makes.
	unknown string
}

// shape is the entries that an action can make.
type shape struct {
	key string
	// anyKey says that the key is not known, anyValue that there are several values, or one
	// that is not known.
	anyKey, anyValue bool
	value            string
	// optional says that there may be no entry in a descriptor that is sent.
	optional bool
}

// opaque is an action whose entry cannot be computed.
type opaque struct {
	name string
	made shape
	why  string
}

func (a *opaque) entry(*exchange) outcome {
	if a.why != "" {
		return outcome{unknown: a.name + ": " + a.why}
	}
	return outcome{unknown: a.name}
}

func (a *opaque) shape() shape { return a.made }

// newAction reads an action of Envoy's API. One that is not known here is opaque.
func newAction(n *node) action {
	for i := range n.fields() {
		below := &n.nodes[i]
		for _, known := range knownActions {
			if sameField(below.name, known.name) && below.kind != null {
				return known.read(below)
			}
		}
	}
	if n.field("extension").there() {
		return &opaque{name: "extension " + n.at("extension", "name").str(), made: shape{anyKey: true, anyValue: true, optional: true}}
	}
	name := "an action that is not known here"
	if fields := n.fields(); len(fields) > 0 {
		name = "action " + fields[0].name
	}
	return &opaque{name: name, made: shape{anyKey: true, anyValue: true, optional: true}}
}

var knownActions = []struct {
	name string
	read func(*node) action
}{
	{"generic_key", newGenericKey},
	{"source_cluster", newSourceCluster},
	{"destination_cluster", newDestinationCluster},
	{"request_headers", newRequestHeaders},
	{"header_value_match", newHeaderValueMatch},
	{"query_parameters", newQueryParameters},
	{"query_parameter_value_match", newQueryParameterValueMatch},
	{"remote_address", newRemoteAddress},
	{"masked_remote_address", newMaskedRemoteAddress},
	{"remote_address_match", newRemoteAddressMatch},
	{"metadata", newMetadata},
	{"dynamic_metadata", newMetadata},
}

// keyOr returns the descriptor_key of an action, or its default.
func keyOr(n *node, otherwise string) string {
	if key := n.field("descriptor_key").str(); key != "" {
		return key
	}
	return otherwise
}
