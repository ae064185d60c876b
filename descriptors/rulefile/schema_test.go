package rulefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestSchemaHasFieldsOfParse checks that the schema allows the fields that Parse accepts in each
// map.
func TestSchemaHasFieldsOfParse(t *testing.T) {
	type object struct {
		Properties  map[string]json.RawMessage
		Definitions map[string]json.RawMessage
		Items       json.RawMessage
		AnyOf       []struct {
			Enum       []string
			Properties map[string]json.RawMessage
		}
		Enum []string
	}
	decode := func(text json.RawMessage) object {
		t.Helper()
		var o object
		must.OK(t, json.Unmarshal(text, &o))
		return o
	}
	root := decode(Schema())
	descriptor, limit := decode(root.Definitions["descriptor"]), decode(root.Definitions["rate_limit"])
	cidr := decode(descriptor.Properties["cidr"]).AnyOf[1]
	prefix := decode(descriptor.Properties["prefix"])
	reserve := decode(limit.Properties["reserve"])
	quota := decode(limit.Properties["quota"])
	denied := decode(root.Definitions["denied_response"]).AnyOf[1]
	replaces := decode(decode(limit.Properties["replaces"]).Items)
	for _, tt := range []struct {
		got  map[string]json.RawMessage
		want fieldSet
	}{
		{root.Properties, rootFields},
		{decode(decode(root.Definitions["exempt"]).Items).Properties, exemptFields},
		{descriptor.Properties, descriptorFields},
		{cidr.Properties, cidrFields},
		{prefix.Properties, prefixFields},
		{limit.Properties, limitFields},
		{reserve.Properties, reserveFields},
		{quota.Properties, quotaFields},
		{replaces.Properties, replacesFields},
		{denied.Properties, deniedFields},
	} {
		got := slices.Sorted(maps.Keys(tt.got))
		if diff := cmp.Diff(slices.Sorted(slices.Values(tt.want.names)), got); diff != "" {
			t.Errorf("fieldsets.go and schema.json have different fields %s (-fieldsets.go +schema.json):\n%s", tt.want.where, diff)
		}
	}
	if diff := cmp.Diff(rules.AlgorithmNames(), decode(limit.Properties["algorithm"]).Enum); diff != "" {
		t.Errorf("algorithms (-parser +schema):\n%s", diff)
	}
	if diff := cmp.Diff(rules.DeniedPresets(), decode(root.Definitions["denied_response"]).AnyOf[0].Enum); diff != "" {
		t.Errorf("presets of denied_response (-parser +schema):\n%s", diff)
	}
	if diff := cmp.Diff(rules.UnitNames(), decode(limit.Properties["unit"]).AnyOf[0].Enum); diff != "" {
		t.Errorf("units (-parser +schema):\n%s", diff)
	}
}

// validator returns a function that validates YAML with the schema.
func validator(t *testing.T) func(text string) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	must.OK(t, err)
	compiler := jsonschema.NewCompiler()
	must.OK(t, compiler.AddResource("schema.json", parsed))
	schema, err := compiler.Compile("schema.json")
	must.OK(t, err)
	return func(text string) error {
		var v any
		if err := yaml.Load([]byte(text), &v); err != nil {
			return err
		}
		return schema.Validate(v)
	}
}

// TestSchemaBounds checks values at the bounds of windows, and wildcards that share a counter.
func TestSchemaBounds(t *testing.T) {
	validate := validator(t)
	texts := []string{
		"{domain: d, descriptors: [{key: k, value: abc, share_threshold: true}]}",
		"{domain: d, descriptors: [{key: k, share_threshold: true}]}",
		"{domain: d, descriptors: [{key: k, value: a*, share_threshold: true}]}",
		"{domain: d, descriptors: [{key: k*, share_threshold: true}]}",
		"{domain: d, descriptors: [{key: k, value: abc, share_threshold: false}]}",
	}
	for _, fields := range []string{
		"values: [a, 1, true]", "values: [a], share_threshold: true", "cidr: [10.0.0.0/8, '::/0', 192.0.2.7]",
		"cidr: [10.0.0.0/8], prefix: {v4: 24, v6: 64}", "cidr: [10.0.0.0/8], share_threshold: true", "cidr: {file: office.txt}", "prefix: {v6: 64}",
		"prefix: {v4: 32}, share_threshold: false", // the others are mistakes
		"values: []", "values: a", "values: ['a*']", "values: ['']", "cidr: ['10.*']", "cidr: 10.0.0.0/8", "cidr: {}", "cidr: {file: ''}", "cidr: {files: a}", "prefix: {}", "prefix: {v4: 33}",
		"value: a, values: [b]", "values: [a], cidr: [10.0.0.0/8]", "values: [a], prefix: {v4: 24}",
	} {
		texts = append(texts, "{domain: d, descriptors: [{key: k, "+fields+"}]}")
	}
	for unit, most := range map[string]int{"second": 315360000, "Minute": 5256000, "hour": 87600, "day": 3650, "week": 521, "month": 121, "YEAR": 10} {
		for _, n := range []int{most, most + 1} {
			texts = append(texts, fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: %s, requests_per_unit: 1, unit_multiplier: %d}}]}", unit, n))
		}
	}
	rejected := 0
	for _, text := range texts {
		configs, found := Parse("f", []byte(text))
		_, ds := descriptors.Build(configs, found, nil, descriptors.Options{})
		if err := validate(text); (err == nil) == ds.HasErrors() {
			t.Errorf("%s: the schema returns %v, the compiler %v", text, err, ds)
		}
		if ds.HasErrors() {
			rejected++
		}
	}
	if rejected != 23 {
		t.Errorf("%d rejected, want 23", rejected)
	}
}

// TestSchemaRejectsInvalidRules checks that the schema rejects each file of testdata/load that
// Parse rejects, except for mistakes that involve several values.
func TestSchemaRejectsInvalidRules(t *testing.T) {
	validate := validator(t)
	beyond := map[string]string{
		"burst_refill_too_long":      "a bound on a product",
		"metadata_not_utf8":          "JSON cannot express it",
		"value_not_utf8":             "JSON cannot express it",
		"rate_limits_same_algorithm": "two elements of a list are compared",
		"rate_limits_same_window":    "two elements of a list are compared",
		"replaces_self":              "two values are compared",
		"requests_float":             "1.0 is a whole number for JSON",
		"too_deep":                   "a bound on the depth",
		"value_is_huge_int":          "editors read numbers as floating point",
	}
	files, err := filepath.Glob("testdata/load/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		accepts := validate(string(text)) == nil
		_, ds := Parse(file, text)
		if why := beyond[name]; accepts != (why != "") && ds.HasErrors() {
			t.Errorf("%s: accepted by the schema: %v; Parse returns %v", name, accepts, ds)
		}
	}
}

// TestUnlimitedExcludesFields checks that Parse and the schema reject unlimited limits with a field
// that affects the limit, even if its value is the default.
func TestUnlimitedExcludesFields(t *testing.T) {
	validate := validator(t)
	values := map[string]string{
		"reserve": "{amount: 1}", "penalty": "[2m]", "unit_multiplier": "1", "algorithm": "fixed_window", "sub_windows": "10",
		"burst": "1", "slack": "1", "max_wait": "1s", "max_waiting": "1", "count_refused": "true", "calendar": "false",
		"timezone": "UTC", "anchor_day": "1", "hidden": "false", "soft": "false", "notify_at": "0.5", "table": "t", "blocks": "auto",
	}
	for _, word := range defaultableFields {
		if values[word] == "" {
			t.Errorf("the test has no value of %q", word)
		}
		text := fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, name: n, %s: %s}}]}", word, values[word])
		if _, ds := Parse("f", []byte(text)); !ds.HasErrors() {
			t.Errorf("Parse accepts %s", text)
		}
		if validate(text) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

func TestSchemaAgreesWithParse(t *testing.T) {
	validate := validator(t)
	limited := func(words string) string {
		return "{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, " + words + "}}]}"
	}
	for _, c := range conformance(t, "cases.yaml") {
		for _, text := range c.Config {
			// The schema requires fields whose absence is only a warning of Parse.
			_, ds := Parse(c.Name, []byte(text))
			if err := validate(text); (err == nil) != (len(ds) == 0) {
				t.Errorf("%s: the schema returns %v, Parse %v", c.Name, err, ds)
			}
		}
	}
	for _, c := range conformance(t, "invalid.yaml") {
		switch {
		case strings.HasPrefix(c.Name, "duplicate_"), c.Name == "replaces_self":
			continue // the schema cannot express it
		}
		if err := validate(c.Config[0]); err == nil {
			t.Errorf("%s: the schema accepts it", c.Name)
		}
	}
	for text, want := range map[string]bool{
		"{domain: d, descriptors: [{key: k, rate_limits: [{unit: Hour, requests_per_unit: 1, unit_multiplier: 2, count_refused: false}]}]}":                               true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, name: n}}], all_or_nothing: true}":                                                              true,
		"{domain: d, descriptors: [{key: 15, value: true}]}":                                                                                                              true,
		"{domain: d, descriptors: [{key: k, rate_limits: [{unit: day, requests_per_unit: 1}, {unit: day, requests_per_unit: 2, shadow: true}]}]}":                         true,
		"{domain: d, descriptors: [{key: k, rate_limits: [{unit: day, requests_per_unit: 2, shadow: true}]}]}":                                                            false,
		"{domain: d, descriptors: [{key: k, rate_limits: [{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 2, shadow: true, replaces: [{name: n}]}]}]}": false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, blocks: off}}]}":                                                                                false,
		limited("shadow: true"):                                                        false,
		limited("shadow: false"):                                                       true,
		"{domain: d, max_counters: 1}":                                                 true,
		"{domain: d, max_counters: 0}":                                                 false,
		limited("algorithm: sliding_window, sub_windows: 60"):                          true,
		limited("algorithm: sliding_window, sub_windows: 61"):                          false,
		limited("algorithm: sliding_window, burst: 1"):                                 false,
		limited("sub_windows: 10"):                                                     false,
		limited("algorithm: token_bucket, burst: 1, count_refused: true"):              true,
		limited("algorithm: token_bucket, burst: 0"):                                   false,
		limited("algorithm: token_bucket, slack: 1"):                                   false,
		limited("burst: 1"):                                                            false,
		limited("algorithm: leaky_bucket, slack: 0, max_wait: 1m1.5s, max_waiting: 0"): true,
		limited("algorithm: leaky_bucket, max_wait: 0"):                                true,
		limited("algorithm: leaky_bucket, max_wait: 5"):                                false,
		limited("algorithm: leaky_bucket, max_wait: -5s"):                              false,
		limited("algorithm: leaky_bucket, max_waiting: 5"):                             false,
		limited("algorithm: concurrency, name: n, count_refused: false"):               true,
		limited("algorithm: concurrency, name: n, count_refused: true"):                false,
		limited("algorithm: concurrency, name: 'a b'"):                                 false,
		limited("algorithm: concurrency, name: 'n:n'"):                                 false,
		limited("algorithm: concurrency"):                                              false,
		limited("name: n, reserve: {amount: 1}"):                                       true,
		limited("name: n, reserve: {p90: true, first: 1, ttl: 5m, unsettled: release}, algorithm: token_bucket, burst: 9"): true,
		limited("name: n, reserve: {p90: true}"):                         false,
		limited("name: n, reserve: {first: 1}"):                          false,
		limited("name: n, reserve: {amount: 1, first: 1, p90: true}"):    false,
		limited("name: n, reserve: {}"):                                  false,
		limited("name: n, reserve: {amount: 0}"):                         false,
		limited("name: n, reserve: {amount: 1, unsettled: keeps}"):       false,
		limited("name: n, reserve: {amount: 1, ttl: 5}"):                 false,
		limited("reserve: {amount: 1}"):                                  false,
		limited("name: n, reserve: {amount: 1}, algorithm: sliding_log"): false,
		limited("penalty: [2m, 5m, 10m]"):                                true,
		limited("penalty: [24h], algorithm: token_bucket"):               true,
		limited("penalty: []"):                                           false,
		limited("penalty: 2m"):                                           false,
		limited("penalty: [2]"):                                          false,
		limited("penalty: [2m, 2m]"):                                     false,
		limited("penalty: [2m], algorithm: leaky_bucket"):                false,
		limited("penalty: [2m], algorithm: concurrency, name: n"):        false,
		limited("penalty: [2m], name: n, reserve: {amount: 1}"):          false,
		limited("blocks: off"):                                           true,
		limited("blocks: 'off', algorithm: sliding_log"):                 true,
		limited("blocks: auto"):                                          true,
		limited("blocks: false"):                                         true,
		limited("blocks: true"):                                          false,
		limited("blocks: none"):                                          false,
		limited("calendar: false"):                                       true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: Month, requests_per_unit: 1, calendar: true, timezone: Europe/Berlin, anchor_day: 31, algorithm: sliding_window, sub_windows: 3}}]}": true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, calendar: true, unit_multiplier: 1}}]}":                                                                   true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, calendar: true}}]}":                                                                                      false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, calendar: true, unit_multiplier: 2}}]}":                                                                   false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, calendar: true, algorithm: token_bucket}}]}":                                                              false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, calendar: true, anchor_day: 1}}]}":                                                                        false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, anchor_day: 1}}]}":                                                                                      false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, timezone: UTC}}]}":                                                                                      false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, calendar: false, timezone: UTC}}]}":                                                                     false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, calendar: true, anchor_day: 0}}]}":                                                                      false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, calendar: true, anchor_day: 32}}]}":                                                                     false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, calendar: true, timezone: Local}}]}":                                                                    false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, calendar: true, timezone: ''}}]}":                                                                       false,
		limited("penalty: [2m], algorithm: token_bucket, quota: {}"):                                                                                                                                false,
		limited("algorithm: magic"):                   false,
		limited("algorithm: token_bucket, quota: {}"): true,
		limited("algorithm: token_bucket, quota: {burst: 1s, min_tokens: 1, approximate: false}, count_refused: false"):   true,
		limited("algorithm: fixed_window, quota: {approximate: true}"):                                                    true,
		limited("quota: {approximate: true}"):                                                                             true,
		limited("quota: {}"):                                                                                              false,
		limited("algorithm: token_bucket, quota: {approximate: true}"):                                                    false,
		limited("algorithm: token_bucket, quota: {burst: 5}"):                                                             false,
		limited("algorithm: token_bucket, quota: {min_tokens: 0}"):                                                        false,
		limited("algorithm: token_bucket, quota: {}, burst: 2"):                                                           false,
		limited("algorithm: token_bucket, quota: {}, count_refused: true"):                                                false,
		limited("algorithm: token_bucket, quota: {}, replaces: [{name: n}]"):                                              false,
		limited("algorithm: token_bucket, quota: {}, name: n, reserve: {amount: 1}"):                                      false,
		limited("algorithm: token_bucket, quota: {}, table: t"):                                                           false,
		limited("algorithm: token_bucket, quota: {}, penalty: [1m]"):                                                      false,
		limited("quota: {approximate: true}, calendar: true"):                                                             false,
		limited("algorithm: sliding_window, quota: {}"):                                                                   false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, quota: {}}}]}":                                  true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4096, algorithm: sliding_log}}]}":  true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4097, algorithm: sliding_log}}]}":  false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4097, algorithm: token_bucket}}]}": true,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, burst: 2}}]}":                                   false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, penalty: [2m]}}]}":                              false,
		"{domain: d, descriptors: [{key: k, rate_limits: []}]}":                                                           false,
		"{domain: d, descriptors: [{key: k, rate_limits: [{unlimited: true}]}]}":                                          false,
		"{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true, unit_multiplier: 2}}]}":                         false,
		"{domain: d, descriptors: [{key: k, rate_limit: null, rate_limits: [{unit: hour, requests_per_unit: 1}]}]}":       false,
	} {
		if err := validate(text); (err == nil) != want {
			t.Errorf("validate(%s) = %v, want valid %v", text, err, want)
		}
	}
}
