package rulefile

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestDefaultsSchemaAgreesWithParse(t *testing.T) {
	text, err := DefaultsSchema()
	must.OK(t, err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must.OK(t, err)
	compiler := jsonschema.NewCompiler()
	must.OK(t, compiler.AddResource("defaults.json", parsed))
	schema, err := compiler.Compile("defaults.json")
	must.OK(t, err)
	example, err := os.ReadFile(filepath.Join("..", "..", "examples", "defaults", "defaults.yaml"))
	must.OK(t, err)
	item := func(fields string) string { return "{domain: d, defaults: [{" + fields + "}]}" }
	limit := func(fields string) string { return item("rate_limit: {" + fields + "}") }
	for text, want := range map[string]bool{
		string(example):                     true,
		"domain: '*'":                       true,
		"{domain: d, defaults: }":           true,
		"{domain: d, all_or_nothing: true}": true,
		"{domain: d, max_counters: 5}":      true,
		limit("algorithm: leaky_bucket, slack: 0, max_wait: 50ms, max_waiting: 7, count_refused: true, unit_multiplier: 2"): true,
		limit("algorithm: sliding_window, sub_windows: 60"):                                                                 true,
		limit("algorithm: token_bucket, burst: 3"):                                                                          true,
		item("name: n, rate_limit: {count_refused: false}"):                                                                 true,
		item("path: [{key: a}, {key: b, value: c}], rate_limit: {count_refused: false}"):                                    true,
		limit("reserve: {amount: 5}"):                                                                                       true,
		limit("penalty: [2m, 5m], algorithm: sliding_log"):                                                                  true,
		item("shadow_mode: true"):                                                                                           true,
		item("name: n, detailed_metric: false"):                                                                             true,
		limit("blocks: off"):                                                                                                true,
		limit("blocks: true"):                                                                                               false,
		"{}":                                                                                                                false,
		limit("reserve: {amount: 5}, algorithm: sliding_log"):                                                               false,
		limit("reserve: {amount: 5}, penalty: [2m]"):                                                                        false,
		limit("penalty: [2m], algorithm: concurrency"):                                                                      false,
		limit("shadow_mode: true"):                                                                                          false,
		item("shadow_mode: 5"):                                                                                              false,
		"[]":                                                                                                                false,
		"{domain: ''}":                                                                                                      false,
		"{domain: d, max_counters: 0}":                                                                                      false,
		"{domain: d, descriptors: []}":                                                                                      false,
		"{domain: d, defaults: {}}":                                                                                         false,
		item(""):                                                                                                            false,
		item("name: n"):                                                                                                     false,
		limit(""):                                                                                                           false,
		limit("burst: 3"):                                                                                                   false,
		limit("algorithm: magic"):                                                                                           false,
		limit("unit: day"):                                                                                                  false,
		item("name: n, rate_limit: {unit: DAY, unit_multiplier: 3}"):                                                        true,
		item("name: n, rate_limit: {unit: fortnight}"):                                                                      false,
		item("name: n, rate_limit: {unit: hour, calendar: true}"):                                                           false,
		item("path: [{key: a}], values: [x, 5]"):                                                                            true,
		item("name: n, cidr: [10.0.0.0/8], prefix: {v4: 24}"):                                                               true,
		item("values: [x]"):                                                                                                 false,
		item("prefix: {v6: 64}"):                                                                                            false,
		item("name: n, values: [x], cidr: [10.0.0.0/8]"):                                                                    false,
		item("name: n, values: [x], prefix: {v6: 64}"):                                                                      false,
		item("name: n, values: []"):                                                                                         false,
		item("name: n, value: x"):                                                                                           false,
		"{domain: '*', exempt: [{key: a, value: x}, {key: b, cidr: {file: a.txt}}]}": true,
		"{domain: '*', exempt: [{key: a}]}":                                          false,
		limit("requests_per_unit: 5"):                                                false,
		limit("unit_multiplier: 0"):                                                  false,
		item("name: '', rate_limit: {count_refused: false}"):                         false,
		item("path: [], rate_limit: {count_refused: false}"):                         false,
		item("path: [{value: a}], rate_limit: {count_refused: false}"):               false,
		item("path: [{key: a, shadow: b}], rate_limit: {count_refused: false}"):      false,
		item("path: [{key: a}], name: n, rate_limit: {count_refused: false}"):        false,
		item("name: n, rate_limit: {algorithm: sliding_window, slack: 1}"):           false,
		limit("algorithm: sliding_window, sub_windows: 61"):                          false,
		limit("algorithm: leaky_bucket, max_wait: 5"):                                false,
		item("names: n, rate_limit: {count_refused: false}"):                         false,
		item("name: n, rate_limit: {algorithm: token_bucket, burst: 1}, value: 5"):   false,
	} {
		var v any
		must.OK(t, yaml.Load([]byte(text), &v))
		err := schema.Validate(v)
		if _, ds := ParseDefaults("f.yaml", []byte(text)); (err == nil) != want || ds.HasErrors() == want {
			t.Errorf("%s: the schema returns %v, ParseDefaults %v, want valid %v", text, err, ds, want)
		}
	}
}

// TestDefaultsSchemaHasFieldsOfParse compares the properties of the schema with the fields that
// ParseDefaults accepts in each map.
func TestDefaultsSchemaHasFieldsOfParse(t *testing.T) {
	type object struct {
		Properties map[string]json.RawMessage
		Items      json.RawMessage
	}
	decode := func(text json.RawMessage) (o object) {
		t.Helper()
		must.OK(t, json.Unmarshal(text, &o))
		return o
	}
	root := decode(defaultsSchemaJSON)
	item := decode(decode(root.Properties["defaults"]).Items)
	for _, tt := range []struct {
		got  object
		want fieldSet
	}{
		{root, defaultsRootFields},
		{item, defaultItemFields},
		{decode(decode(item.Properties["path"]).Items), defaultPathFields},
		{decode(item.Properties["rate_limit"]), defaultLimitFields},
	} {
		got := slices.Sorted(maps.Keys(tt.got.Properties))
		if diff := cmp.Diff(slices.Sorted(slices.Values(tt.want.names)), got); diff != "" {
			t.Errorf("fieldsets.go and schema_defaults.json have different fields %s (-fieldsets.go +schema_defaults.json):\n%s", tt.want.where, diff)
		}
	}
}
