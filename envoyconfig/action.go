package envoyconfig

import "github.com/sluice-ratelimit/sluice/envoyconfig/tree"

// action makes one entry of a descriptor.
type action struct {
	// kind is the field name of the action in Envoy's API, and node its value.
	kind string
	node *tree.Node
	// label precedes the reason if the value is unknown; empty if the reason needs none.
	label string
	form  entryForm
	value func(x *exchange) outcome
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
