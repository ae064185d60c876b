package envoyconfig

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
