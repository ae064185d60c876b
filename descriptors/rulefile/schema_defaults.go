package rulefile

import (
	"encoding/json"
	"fmt"
	"slices"
)

// DefaultsSchema returns the JSON Schema (draft-07) of one document of defaults. It takes the
// fields of rate_limit from [Schema].
func DefaultsSchema() ([]byte, error) {
	type object = map[string]any
	var rules struct {
		Properties  map[string]json.RawMessage
		Definitions struct {
			Denied     json.RawMessage `json:"denied_response"`
			Descriptor struct {
				Properties map[string]json.RawMessage
			}
			RateLimit struct {
				Properties   map[string]json.RawMessage
				Dependencies map[string]map[string]any
			} `json:"rate_limit"`
		}
	}
	if err := json.Unmarshal(schemaJSON, &rules); err != nil {
		return nil, fmt.Errorf("schema of rules: %w", err)
	}
	delete(rules.Definitions.RateLimit.Dependencies["reserve"], "required") // the rules have the name
	words := object{}
	descriptor := rules.Definitions.Descriptor.Properties
	for _, word := range defaultLimitFields.names {
		words[word] = rules.Definitions.RateLimit.Properties[word]
	}
	text := func(description string) object {
		return object{"description": description, "type": []string{"string", "integer", "boolean"}, "minLength": 1}
	}
	closed := func(properties object, required ...string) object {
		o := object{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			o["required"] = required
		}
		return o
	}
	limit := closed(words)
	limit["description"] = "The fields to set on rules that have none of them."
	limit["minProperties"] = 1
	limit["dependencies"] = rules.Definitions.RateLimit.Dependencies
	item := closed(object{
		"name": text("The name of the rules. An item without name and path applies to all other rules."),
		"path": object{
			"description": "The key and value of each level down to the rule.",
			"type":        "array", "minItems": 1,
			"items": closed(object{"key": descriptor["key"], "value": descriptor["value"]}, "key"),
		},
		"rate_limit": limit, "denied_response": rules.Definitions.Denied,
		"detailed_metric": descriptor["detailed_metric"], "shadow_mode": descriptor["shadow_mode"],
		"values": descriptor["values"], "cidr": descriptor["cidr"], "prefix": descriptor["prefix"],
	})
	var oneRequired []object
	for _, field := range defaultItemFields.names[2:] {
		oneRequired = append(oneRequired, object{"required": []string{field}})
	}
	item["not"] = object{"anyOf": []object{
		{"required": []string{"name", "path"}},
		{"required": []string{"values", "cidr"}},
		{"required": []string{"values", "prefix"}},
	}}
	item["allOf"] = []object{
		{"anyOf": oneRequired},
		{"anyOf": []object{ // a rule's own name is for one rule
			{"required": []string{"path"}},
			{"properties": object{"rate_limit": object{"not": object{"required": []string{"name"}}}}},
		}},
		{"anyOf": []object{ // not for all rules
			{"required": []string{"path"}},
			{"required": []string{"name"}},
			{"properties": object{
				"values": false, "cidr": false, "prefix": false,
				"rate_limit": object{"not": object{"required": []string{"unit"}}},
			}},
		}},
	}
	root := closed(object{
		"domain":          text(`The domain of the rules, or "*" for all domains.`),
		"all_or_nothing":  rules.Properties["all_or_nothing"],
		"max_counters":    rules.Properties["max_counters"],
		"denied_response": rules.Definitions.Denied,
		"exempt":          rules.Properties["exempt"],
		"defaults":        object{"description": "The fields to set, each for a rule, a name, or all rules.", "type": []string{"array", "null"}, "items": item},
	}, "domain")
	selections := object{"values": descriptor["values"], "cidr": descriptor["cidr"]}
	root["definitions"] = object{"descriptor": object{"properties": selections}} // exempt refers to it
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Defaults of rate limit rules"
	root["description"] = "Fields for rules that do not set them, for one domain or all."
	schema, err := json.MarshalIndent(root, "", "  ")
	return slices.Concat(schema, []byte("\n")), err
}
