package envoyconfig

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// evaluatedHits are the hits of a descriptor.
type evaluatedHits struct {
	// text describes the number: "1 hit", "hits of BYTES_SENT".
	text string
	// charges is true if the descriptor can charge a counter: the number may be positive and is not returned.
	charges bool
	// number is the number of hits if it is a constant, and not a refund.
	number uint64
}

var (
	// When a request arrives, the commands in absentAtStart have no value, and those in zeroAtStart are 0.
	absentAtStart = []string{"RESP", "RESPONSE_HEADER", "TRAILER", "RESPONSE_CODE", "RESPONSE_DURATION", "RESPONSE_TX_DURATION", "DURATION", "UPSTREAM_REQUEST_ATTEMPT_COUNT"}
	zeroAtStart   = []string{"BYTES_SENT", "BYTES_RECEIVED", "UPSTREAM_WIRE_BYTES_SENT", "UPSTREAM_WIRE_BYTES_RECEIVED", "DOWNSTREAM_WIRE_BYTES_SENT", "REQUEST_DURATION"}
	// textCommands never are a number.
	textCommands = []string{
		"PROTOCOL", "RESPONSE_CODE_DETAILS", "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG", "ROUTE_NAME", "UPSTREAM_CLUSTER", "VIRTUAL_CLUSTER_NAME", "HOSTNAME", "CONNECTION_TERMINATION_DETAILS",
		"DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS", "DOWNSTREAM_LOCAL_ADDRESS", "UPSTREAM_HOST", "STREAM_ID", "PATH", "START_TIME",
	}
	// anyCommand matches a format string with one command.
	anyCommand = regexp.MustCompile(`^%([A-Z0-9_]+)(?:\((.*)\))?(?::[0-9]+)?%$`)
)

// evaluateHits evaluates hits_addend. Envoy does not send the descriptor if the format gives no number.
func (m *manager) evaluateHits(e *evaluation) evaluatedHits {
	at := e.node.Field("hits_addend")
	if !at.Exists() {
		if m.setsHits(e.limiter) {
			return evaluatedHits{text: "hits of the filter state " + hitsState, charges: true}
		}
		return evaluatedHits{"1 hit", true, 1}
	}
	refund := at.Field("is_negative_hits").Bool(false)
	format := at.Field("format")
	n := at.Field("number").Uint(0)
	if !e.own && n == 1 && !refund && format.Text == "" {
		return evaluatedHits{"1 hit", true, 1} // Envoy ignores hits_addend of a route, with the same result
	}
	if !e.own {
		e.fail(HitsDropped, rules.Error, at, "Envoy does not send hits_addend from the rate_limits of a route or virtual host: "+
			"move this element to the filter's typed_per_filter_config (RateLimitPerRoute), or to the filter")
		return evaluatedHits{"1 hit", true, 1}
	}
	switch {
	case format.Text != "":
		h := m.evaluateFormat(e, format)
		if refund {
			h.text = "a refund of " + h.text
			h.charges = false
		}
		return h
	case refund:
		return evaluatedHits{text: "a refund of " + rules.Count(int(min(n, 1<<31)), "hit")}
	default:
		return evaluatedHits{rules.Count(int(min(n, 1<<31)), "hit"), n > 0, n}
	}
}

// hitsState is the key of the filter state with the hits of descriptors without hits_addend.
const hitsState = "envoy.ratelimit.hits_addend"

// setsHits reports whether a filter before the limiter sets the hits in the filter state.
func (m *manager) setsHits(limiter *filter) bool {
	return slices.ContainsFunc(m.before(limiter), func(f *filter) bool { return mentions(f.config, hitsState) })
}

func (m *manager) evaluateFormat(e *evaluation, format *tree.Node) evaluatedHits {
	command := e.command
	if command == "" {
		n, err := strconv.ParseFloat(format.Text, 64)
		return evaluatedHits{text: "hits of " + rules.Shorten(format.Text), charges: err != nil || n >= 1}
	}
	hits := evaluatedHits{text: "hits of " + rules.Shorten(strings.Trim(format.Text, "%")), charges: true}
	switch {
	case slices.Contains(clientCommands, command):
		e.fail(ClientHits, rules.Warning, format, "clients choose the hits with %s: a request with 0 charges nothing, and one without a number is not limited at all: set the value in a filter before the rate limit filter, or use a number", rules.Shorten(format.Text))
		e.conditions = append(e.conditions, "with a number in "+rules.Shorten(strings.Trim(format.Text, "%")))
	case slices.Contains(textCommands, command):
		e.neverSend(format, rules.Shorten(format.Text)+" is no number, which hits must be")
	case slices.Contains(absentAtStart, command) && !e.streamDone:
		e.neverSend(format, rules.Shorten(format.Text)+" has no value when a request arrives: add apply_on_stream_done: true, and an element with hits_addend: { number: 0 } for the start")
	case slices.Contains(zeroAtStart, command) && !e.streamDone:
		e.fail(NoEffect, rules.Warning, format, "%s is 0 when a request arrives, so the descriptor charges nothing: add apply_on_stream_done: true, and an element with hits_addend: { number: 0 } for the start", rules.Shorten(format.Text))
		hits.charges = false
	case command == "FILTER_STATE" && e.limiter != nil && !m.fragments && !m.mayRunCodeBefore(e.limiter):
		e.fail(NoEffect, rules.Warning, format, "no filter before the rate limit filter sets %s, so requests are not limited: add the one that does, or use dynamic metadata", rules.Shorten(format.Text))
	case command == "DYNAMIC_METADATA" && e.limiter != nil:
		read := e.readValues[0]
		if read.namespace == e.limiter.namespace() {
			break // see checkReleasedLease
		}
		if origin := m.originOfValue(e.limiter, read, e.streamDone); origin.whyUnset != "" {
			e.neverSend(format, "the hits have no value: "+origin.whyUnset)
		}
	}
	return hits
}

// mayRunCodeBefore reports whether a filter before f may run code, and so may do more than its configuration shows.
func (m *manager) mayRunCodeBefore(f *filter) bool {
	return slices.ContainsFunc(m.before(f), func(other *filter) bool { return other.writesTo("") == mayWrite })
}
