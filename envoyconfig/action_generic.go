package envoyconfig

import "strings"

// formatterFeature is the runtime's key that has Envoy take descriptor values for format
// strings. It is off unless set.
const formatterFeature = "envoy.reloadable_features.enable_formatter_for_ratelimit_action_descriptor_value"

// generic is an action with a descriptor_value: generic_key, and those that match.
type generic struct {
	name string
	key  string
	node *node
	// matches is nil where the action always has its entry.
	matches func(x *exchange) (verdict, string)
	// formatted says that the value is a format string in any case.
	formatted bool
}

func newGenericKey(n *node) action {
	return &generic{name: "generic_key", key: keyOr(n, "generic_key"), node: n}
}

func newHeaderValueMatch(n *node) action {
	matchers := newHeaderMatchers(n.field("headers"))
	expect := n.field("expect_match").yes(true)
	return &generic{
		name: "header_value_match", key: keyOr(n, "header_match"), node: n,
		matches: func(x *exchange) (verdict, string) {
			return matchers.match(x).is(expect), "the headers do " + notIf(expect) + "match"
		},
	}
}

func newQueryParameterValueMatch(n *node) action {
	matchers := newQueryMatchers(n.field("query_parameters"))
	expect := n.field("expect_match").yes(true)
	return &generic{
		name: "query_parameter_value_match", key: keyOr(n, "query_match"), node: n,
		matches: func(x *exchange) (verdict, string) {
			return matchers.match(x.decodedQuery()).is(expect), "the query parameters do " + notIf(expect) + "match"
		},
	}
}

func newRemoteAddressMatch(n *node) action {
	return &generic{
		name: "remote_address_match", key: keyOr(n, "remote_address_match"), node: n, formatted: true,
		matches: newAddressMatcher(n.field("address_matcher")),
	}
}

func notIf(not bool) string {
	if not {
		return "not "
	}
	return ""
}

func (a *generic) entry(x *exchange) outcome {
	if a.matches != nil {
		switch v, why := a.matches(x); {
		case v.unknown != "":
			return outcome{unknown: a.name + ": " + v.unknown}
		case !v.yes:
			return outcome{absent: why}
		}
	}
	value := a.node.field("descriptor_value").str()
	if a.isFormat(x.config.formatted) {
		return outcome{unknown: a.name + ": the value " + a.node.field("descriptor_value").shown() + " is a format string"}
	}
	return outcome{key: a.key, value: value, has: true}
}

func (a *generic) isFormat(runtime bool) bool {
	return (a.formatted || runtime) && strings.Contains(a.node.field("descriptor_value").str(), "%")
}

func (a *generic) shape() shape {
	return shape{key: a.key, value: a.node.field("descriptor_value").str(), anyValue: a.isFormat(true)}
}

// sourceCluster is Envoy's own name for the service that it belongs to.
type sourceCluster struct{}

func newSourceCluster(*node) action { return sourceCluster{} }

func (sourceCluster) entry(x *exchange) outcome {
	if !x.config.nodeCluster.there() {
		return outcome{unknown: "source_cluster: there is no node.cluster, so that --service-cluster may say it"}
	}
	return outcome{key: "source_cluster", value: x.config.nodeCluster.str(), has: true}
}

func (sourceCluster) shape() shape { return shape{key: "source_cluster", anyValue: true} }

// destinationCluster is the cluster that the request is to go to.
type destinationCluster struct{}

func newDestinationCluster(*node) action { return destinationCluster{} }

func (destinationCluster) entry(x *exchange) outcome {
	const key = "destination_cluster"
	name, unknown := x.cluster()
	if unknown != "" {
		return outcome{unknown: key + ": " + unknown}
	}
	return outcome{key: key, value: name, has: true}
}

func (destinationCluster) shape() shape { return shape{key: "destination_cluster", anyValue: true} }
