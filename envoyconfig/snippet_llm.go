package envoyconfig

// llmNamespace is the metadata namespace of what the filters of the snippet read, and modelKey the key of a rule for
// the model of a request.
const llmNamespace, modelKey = "llm", "model"

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

// keys returns the paths of the costs in the metadata.
func (a *llmAPI) keys() (keys []string) {
	for _, cost := range a.Costs {
		keys = append(keys, llmNamespace+":"+cost)
	}
	return keys
}
