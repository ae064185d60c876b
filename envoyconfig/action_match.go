package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// formatterFeature is the runtime key that makes Envoy read descriptor values as format strings. It is off by
// default.
const formatterFeature = "envoy.reloadable_features.enable_formatter_for_ratelimit_action_descriptor_value"

// setFixedValue makes the action return its descriptor_value for requests that match; all match if matches is nil.
// formatted is true if the value is a format string regardless of the runtime.
func setFixedValue(a *action, formatted bool, matches func(x *exchange) (verdict, string)) {
	at := a.node.Field("descriptor_value")
	isFormat := func(runtime bool) bool { return (formatted || runtime) && strings.Contains(at.Text, "%") }
	a.form.value, a.form.anyValue = at.Text, isFormat(true)
	a.value = func(x *exchange) outcome {
		if matches != nil {
			if v, why := matches(x); v.unknown != "" || !v.yes {
				return outcome{unknown: v.unknown, absent: why}
			}
		}
		if isFormat(x.valuesAreFormats) {
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
	expected, not := a.node.Field("expect_match").Bool(true), ""
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
