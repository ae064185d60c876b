package envoyconfig

import "github.com/sluice-ratelimit/sluice/envoyconfig/tree"

// action makes one entry of a descriptor.
type action struct {
	// kind is the action's name in Envoy's API, and node its fields.
	kind string
	node *tree.Node
	// label is what an unknown value is said to be of; empty if unknown says it.
	label string
	shape shape
	value func(x *exchange) outcome
}

// shape is the entries that an action can make, of any request.
type shape struct {
	key string
	// anyKey says that the key is not known, anyValue that there are several values, or one
	// that is not known.
	anyKey, anyValue bool
	value            string
	// optional says that there may be no entry in a descriptor that is sent.
	optional bool
}

// outcome is what an action made of a request.
type outcome struct {
	value string
	// present says that there is an entry; an action may add none, and the descriptor is sent
	// all the same.
	present bool
	// absent says why there is no descriptor, where there is none.
	absent string
	// unknown says why it cannot be known what the action makes.
	unknown string
}

// entry makes the entry for a request.
func (a *action) entry(x *exchange) outcome {
	switch made := a.value(x); {
	case made.unknown != "" && a.label != "":
		return outcome{unknown: a.label + ": " + made.unknown}
	case made.unknown != "":
		return outcome{unknown: made.unknown}
	case made.present:
		return outcome{value: made.value, present: true}
	case a.shape.optional:
		return outcome{}
	default:
		return outcome{absent: made.absent}
	}
}

// unknowable is the value of an action that cannot be computed.
func unknowable(why string) func(*exchange) outcome {
	return func(*exchange) outcome { return outcome{unknown: why} }
}
