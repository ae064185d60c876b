package envoyconfig

import "slices"

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
	settles := slices.ContainsFunc(lists, func(l *snippetList) bool { return l.settles })
	for i, cost := range a.Costs {
		values = append(values, llmValue{Field: cost, Key: cost, OrZero: settles && i == 0, OrEstimate: a.Estimate > 0 && !settles && i == 0})
	}
	if a.Estimate > 0 && settles && slices.ContainsFunc(lists, func(l *snippetList) bool { return l.unreserved && (l.settles || l.plain) }) {
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
