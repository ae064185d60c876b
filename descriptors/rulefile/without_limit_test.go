package rulefile

import (
	"strings"
	"testing"
)

// TestFieldsWithoutLimit has fields that modify a limit on nodes with and without a limit.
func TestFieldsWithoutLimit(t *testing.T) {
	const below = ", descriptors: [{key: l, rate_limit: {unit: hour, requests_per_unit: 1}}]"
	for text, want := range map[string][]string{
		"key: k, shadow_mode: true" + below:                                             {"shadow_mode"},
		"key: k, quota_mode: true" + below:                                              {"quota_mode"},
		"key: k, detailed_metric: true" + below:                                         {"detailed_metric"},
		"key: k, shadow_mode: true, detailed_metric: true":                              {"shadow_mode", "detailed_metric"},
		"key: k, shadow_mode: false, quota_mode: false" + below:                         nil,
		"key: k, value_to_metric: true" + below:                                         nil,
		"key: k, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}":     nil,
		"key: k, shadow_mode: true, rate_limits: [{unit: hour, requests_per_unit: 1}]":  nil,
		"key: k, shadow_mode: true, rate_limit: {unlimited: true}":                      nil,
		"key: k, rate_limit: {unit: hour, requests_per_unit: 1}, detailed_metric: true": nil,
	} {
		_, found := Parse("f", []byte("{domain: d, descriptors: [{"+text+"}]}"))
		var got []string
		for _, d := range found {
			word, _, ok := strings.Cut(strings.TrimPrefix(d.Message, `"`), `" has no effect on a descriptor without a limit`)
			if !ok {
				t.Errorf("%s: %v", text, d)
			}
			got = append(got, word)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: warnings about %q, want %q", text, got, want)
		}
	}
}
