package envoyconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// orEstimate is the suffix of a key whose value is an estimate for streams without usage.
const orEstimate = "_or_estimate"

// modelAction is the action for the model of a request, which json_to_metadata reads.
const modelAction = "metadata: { descriptor_key: model, metadata_key: { key: llm, path: [{ key: model }] }, default_value: unknown }"

// llmAPI describes where the responses of an LLM's API report the used tokens. In complete responses and in the Paths
// of events there is an object, usage.
type llmAPI struct {
	// Costs are the fields of usage that are charged.
	Costs []string
	// Paths are the objects of events that contain usage. Later events replace the values of earlier ones.
	Paths [][]string
	// Estimate is charged for a stream without usage. It is 0 if every stream reports it.
	Estimate int
}

// llms maps the names of APIs that [Snippet] supports.
var llms = map[string]*llmAPI{
	// Chat Completions and Responses
	"openai": {Costs: []string{"total_tokens"}, Paths: [][]string{{}, {"response"}}, Estimate: 1000},
	// Messages: message_start has the first values, message_delta totals. Tokens read from the cache are not charged.
	"anthropic": {Costs: []string{"input_tokens", "cache_creation_input_tokens", "output_tokens"}, Paths: [][]string{{"message"}, {}}},
}

// llmValue is a field of usage and the key of the metadata that gets its value.
type llmValue struct {
	Field, Key string
	// OrZero and OrEstimate are set if complete and streamed responses without the field set 0 and the API's Estimate.
	OrZero, OrEstimate bool
}

// values returns the values that the lists of actions need: if some settle reservations, streams without usage leave
// total_tokens unset, so that the reservation is charged. Lists with other limits then need a key with the estimate.
func (a *llmAPI) values(lists []*snippetList) (values []llmValue) {
	if a == nil {
		return nil
	}
	settles := slices.ContainsFunc(lists, func(l *snippetList) bool { return l.settles() })
	for i, cost := range a.Costs {
		values = append(values, llmValue{
			Field: cost, Key: cost, OrZero: settles && i == 0, OrEstimate: a.Estimate > 0 && !settles && i == 0,
		})
	}
	if a.Estimate > 0 && settles &&
		slices.ContainsFunc(lists, func(l *snippetList) bool { return l.unreserved && (l.settles() || l.plain) }) {
		values = append(values, llmValue{Field: a.Costs[0], Key: a.Costs[0] + orEstimate, OrEstimate: true})
	}
	return values
}

// keys returns the keys of the metadata that a list charges.
func (a *llmAPI) keys(values []llmValue, l *snippetList) []string {
	if last := values[len(values)-1]; l.unreserved && last.OrEstimate {
		return []string{last.Key}
	}
	return a.Costs
}

// celName matches a name that CEL accepts after a dot.
var celName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// celMetadata returns the CEL expression for a value of the dynamic metadata.
func celMetadata(namespace, key string) string {
	if celName.MatchString(key) {
		return fmt.Sprintf("metadata.filter_metadata['%s'].%s", namespace, key)
	}
	return fmt.Sprintf("metadata.filter_metadata['%s']['%s']", namespace,
		strings.NewReplacer(`\`, `\\\\`, `'`, `\\'`).Replace(key))
}

// costFormat returns the hits_addend of an element that charges the cost in the metadata with the given
// key. If reservations is not empty, the cost replaces the request's reservation.
//
// A denied request must cost nothing, whatever its body: it has no lease, so reading the lease fails and
// Envoy drops the element. A cost above 1 is also charged without a lease, for a request that started
// while the service was unavailable. If the first cost is unknown, a request costs its reservation, or
// nothing if its response shows that the backend did nothing for it.
func costFormat(namespace, key string, reservations []string, first, estimated bool) string {
	cost := celMetadata(namespace, key)
	comparisons := make([]string, len(reservations))
	for i, name := range reservations {
		comparisons[i] = celMetadata(filterNamespace, name) + " > 0.0"
	}
	lease := strings.Join(comparisons, " || ")
	const notDenied = "response.code_details != 'request_rate_limited'"
	charge := fmt.Sprintf("%[1]s > 1.0\n      && %[2]s\n      || %[3]s\n      ? %[1]s : 0.0", cost, notDenied, lease)
	switch {
	case len(reservations) == 0 && estimated:
		return fmt.Sprintf(" { format: \"%%CEL(%s ? %s : 'denied')%%\" }", notDenied, cost)
	case len(reservations) == 0:
		return fmt.Sprintf(` { format: "%%DYNAMIC_METADATA(%s:%s)%%" }`, namespace, key)
	case !first:
		return fmt.Sprintf("\n    format: \"%%CEL(%s)%%\"", charge)
	}
	if len(reservations) > 1 {
		lease = "(" + lease + ")"
	}
	return fmt.Sprintf(`
    format: "%%CEL('%[1]s' in metadata.filter_metadata && '%[2]s' in metadata.filter_metadata['%[1]s']
      ? (%[3]s)
      : (%[4]s
      && response.code >= 204 && response.code != 504
      && response.code_details != 'response_payload_too_large'
      && !response.code_details.startsWith('upstream_reset_after')
      ? 0.0 : 'unsettled'))%%"`, namespace, key, charge, lease)
}
