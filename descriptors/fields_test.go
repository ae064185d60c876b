package descriptors

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// fieldExamples has two descriptors for each field of the rules, which differ only in that field.
// LIMIT is a limit, to which fields may be appended.
var fieldExamples = map[string][2]string{
	"key":             {"key: a, rate_limit: {LIMIT}", "key: b, rate_limit: {LIMIT}"},
	"value":           {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, value: v"},
	"values":          {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, values: [v, w]"},
	"cidr":            {"key: a, rate_limit: {LIMIT}, cidr: [10.0.0.0/8]", "key: a, rate_limit: {LIMIT}, cidr: [10.0.0.0/9]"},
	"prefix":          {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, prefix: {v6: 64}"},
	"descriptors":     {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, descriptors: [{key: b, rate_limit: {LIMIT}}]"},
	"shadow_mode":     {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, shadow_mode: true"},
	"quota_mode":      {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, quota_mode: true"},
	"detailed_metric": {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, detailed_metric: true"},
	"value_to_metric": {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, value_to_metric: true"},
	"share_threshold": {"key: a*, rate_limit: {LIMIT}", "key: a*, rate_limit: {LIMIT}, share_threshold: true"},
	"metadata":        {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, metadata: {team: b}"},
	"denied_response": {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT}, denied_response: none"},
	"rate_limit":      {"key: a", "key: a, rate_limit: {LIMIT}"},
	"rate_limits":     {"key: a", "key: a, rate_limits: [{LIMIT}]"},
	"charge":          {"key: a, rate_limits: [{LIMIT}, {unit: day, requests_per_unit: 1}]", "key: a, rate_limits: [{LIMIT}, {unit: day, requests_per_unit: 1}], charge: first_with_room"},

	"unit":              {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {unit: hour, requests_per_unit: 5}"},
	"requests_per_unit": {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {unit: month, requests_per_unit: 6}"},
	"unlimited":         {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {unlimited: true}"},
	"name":              {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, name: n}"},
	"replaces":          {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, replaces: [{name: m}]}"},
	"shadow":            {"key: a, rate_limits: [{LIMIT}, {unit: day, requests_per_unit: 1}]", "key: a, rate_limits: [{LIMIT}, {unit: day, requests_per_unit: 1, shadow: true}]"},
	"counter":           {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, counter: pool}"},
	"reserve":           {"key: a, rate_limit: {LIMIT, name: n}", "key: a, rate_limit: {LIMIT, name: n, reserve: {amount: 1}}"},
	"penalty":           {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, penalty: [2m]}"},
	"quota":             {"key: a, rate_limit: {LIMIT, algorithm: token_bucket}", "key: a, rate_limit: {LIMIT, algorithm: token_bucket, quota: {}}"},
	"unit_multiplier":   {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, unit_multiplier: 2}"},
	"algorithm":         {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, algorithm: sliding_log}"},
	"sub_windows":       {"key: a, rate_limit: {LIMIT, algorithm: sliding_window}", "key: a, rate_limit: {LIMIT, algorithm: sliding_window, sub_windows: 3}"},
	"burst":             {"key: a, rate_limit: {LIMIT, algorithm: token_bucket}", "key: a, rate_limit: {LIMIT, algorithm: token_bucket, burst: 9}"},
	"slack":             {"key: a, rate_limit: {LIMIT, algorithm: leaky_bucket}", "key: a, rate_limit: {LIMIT, algorithm: leaky_bucket, slack: 1}"},
	"max_wait":          {"key: a, rate_limit: {LIMIT, algorithm: leaky_bucket}", "key: a, rate_limit: {LIMIT, algorithm: leaky_bucket, max_wait: 1s}"},
	"max_waiting":       {"key: a, rate_limit: {LIMIT, algorithm: leaky_bucket, max_wait: 1s}", "key: a, rate_limit: {LIMIT, algorithm: leaky_bucket, max_wait: 1s, max_waiting: 3}"},
	"count_refused":     {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, count_refused: false}"},
	"calendar":          {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, calendar: true}"},
	"timezone":          {"key: a, rate_limit: {LIMIT, calendar: true}", "key: a, rate_limit: {LIMIT, calendar: true, timezone: Europe/Berlin}"},
	"anchor_day":        {"key: a, rate_limit: {LIMIT, calendar: true}", "key: a, rate_limit: {LIMIT, calendar: true, anchor_day: 3}"},
	"hidden":            {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, hidden: true}"},
	"soft":              {"key: a, rate_limit: {LIMIT, name: n}", "key: a, rate_limit: {LIMIT, name: n, soft: true}"},
	"notify_at":         {"key: a, rate_limit: {LIMIT, name: n}", "key: a, rate_limit: {LIMIT, name: n, notify_at: 0.5}"},
	"blocks":            {"key: a, rate_limit: {LIMIT, blocks: auto}", "key: a, rate_limit: {LIMIT, blocks: off}"},
	"table":             {"key: a, rate_limit: {LIMIT}", "key: a, rate_limit: {LIMIT, table: customers}"},
}

// TestEveryFieldIsCompiled checks that each field of the schema changes the hash of the rules, and
// is in [Set.Changes] and [Set.Dump] unless it is listed here. It finds fields that are parsed and
// then dropped, or missing in one of the texts.
func TestEveryFieldIsCompiled(t *testing.T) {
	// envoyproxy/ratelimit also has these fields, and does not show them.
	notInDump := []string{"detailed_metric", "metadata", "share_threshold", "value_to_metric", "name", "replaces"}
	registry := new(tables.Registry)
	if _, err := registry.Add("customers", ""); err != nil {
		t.Fatal(err)
	}
	compiled := func(descriptor string) *Set {
		return load(t, Options{Tables: registry, TablesLater: true},
			"{domain: d, descriptors: [{"+strings.ReplaceAll(descriptor, "LIMIT", "unit: month, requests_per_unit: 5")+"}]}")
	}
	dumped := func(s *Set) string {
		var b strings.Builder
		if err := s.Dump(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	var schema struct {
		Definitions map[string]struct{ Properties map[string]json.RawMessage }
	}
	if err := json.Unmarshal(rulefile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var unchanged, undumped []string
	for _, kind := range []string{"descriptor", "rate_limit"} {
		for _, field := range slices.Sorted(maps.Keys(schema.Definitions[kind].Properties)) {
			example, ok := fieldExamples[field]
			if !ok {
				t.Errorf("fieldExamples has no example of %q: add two descriptors that differ only in this field", field)
				continue
			}
			was, is := compiled(example[0]), compiled(example[1])
			if was.Hash == is.Hash {
				t.Errorf("%q does not change the hash, so a change of it is not a change of the rules: add it to compile_hash.go", field)
			}
			if c := is.Changes(was); c.Total() == 0 {
				unchanged = append(unchanged, field)
			}
			if dumped(was) == dumped(is) {
				undumped = append(undumped, field)
			}
		}
	}
	if len(unchanged) > 0 {
		t.Errorf("the log of a reload does not show a change of %q; see fields.go", unchanged)
	}
	if diff := cmp.Diff(notInDump, undumped); diff != "" {
		t.Errorf("/rlconfig does not show these fields; see fields.go (-expected +got):\n%s", diff)
	}
}
