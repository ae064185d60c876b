package descriptors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		was, is []string
		want    Changes
	}{
		"a limit": {
			[]string{"{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]}"},
			[]string{"{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 0}}]}"},
			Changes{Changed: 1, First: []string{"shop: user 5/hour -> 0/hour"}},
		},
		"words": {
			[]string{"{domain: shop, descriptors: [{key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}]}"},
			[]string{"{domain: shop, all_or_nothing: true, max_counters: 7, descriptors: [{key: user, rate_limit: {algorithm: token_bucket, burst: 7, name: n, unit: hour, requests_per_unit: 5}}]}"},
			Changes{Changed: 2, First: []string{
				"shop: defaults -> all_or_nothing: true, max_counters: 7; its counters in memory start again",
				`shop: user 5/hour, shadow_mode: true -> 5/hour, algorithm: token_bucket, burst: 7, name: "n"`,
			}},
		},
		"rules added and removed": {
			[]string{"{domain: shop, descriptors: [{key: user, value: al, rate_limit: {unit: hour, requests_per_unit: 5}, descriptors: [{key: path, rate_limit: {unlimited: true}}]}, {key: stays}]}"},
			[]string{"{domain: shop, descriptors: [{key: stays}, {key: user, value: al, descriptors: [{key: way, rate_limits: [{unit: day, requests_per_unit: 9}, {unit: hour, requests_per_unit: 2, shadow: true}]}]}]}"},
			Changes{Added: 1, Removed: 2, First: []string{
				"shop: user=al removed, was 5/hour",
				"shop: user=al > way added, 9/day and 2/hour, shadow: true",
				"shop: user=al > path removed, was unlimited",
			}},
		},
		"domains added and removed": {
			[]string{"domain: a", "{domain: b, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]}"},
			[]string{"{domain: c, descriptors: [{key: k, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: x, rate_limit: {unlimited: true}}]}]}", "domain: a"},
			Changes{Added: 1, Removed: 1, First: []string{"b: domain removed, 1 limit", "c: new domain, 2 limits"}},
		},
		"only positions": {
			[]string{"{domain: shop, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}]}"},
			[]string{"{domain: shop, descriptors: [\n\n{key: b, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}]}"},
			Changes{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := load(t, Options{}, tt.is...).Changes(load(t, Options{}, tt.was...))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesAreTruncated(t *testing.T) {
	rules := func(limit int) string {
		var b strings.Builder
		b.WriteString("domain: shop\ndescriptors:\n")
		for i := range 50 {
			fmt.Fprintf(&b, "- {key: user, value: u%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", i, limit)
		}
		return b.String()
	}
	got := load(t, Options{}, rules(2)).Changes(load(t, Options{}, rules(1)))
	if got.Changed != 50 || got.Total() != 50 || len(got.First) != MaxChanges || got.First[0] != "shop: user=u0 1/hour -> 2/hour" {
		t.Errorf("changes are %+v, want the first %d of 50", got, MaxChanges)
	}
}

// TestCounterpart checks that only limits with the same counters are found in another set, whatever
// their numbers.
func TestCounterpart(t *testing.T) {
	const text = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: user, value: al, rate_limits: [{unit: hour, requests_per_unit: 5}, {unit: day, requests_per_unit: 50}]}
  - {key: user, value: a*, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: p*, rate_limit: {unit: hour, requests_per_unit: 5}, descriptors: [{key: path, value: /x, rate_limit: {unit: hour, requests_per_unit: 5}}]}
  - {key: p*, value: q, rate_limit: {unit: hour, requests_per_unit: 5}}
`
	was, is := load(t, Options{}, text), load(t, Options{}, "\n"+strings.ReplaceAll(text, "5}", "6}"))
	for i, l := range was.Limits {
		if got := is.Counterpart(l); got != is.Limits[i] {
			t.Errorf("%s %s has the counterpart %v, want %s", l.Rule.Path(), l, got, is.Limits[i])
		}
	}
	for _, other := range []string{
		"domain: shop", "domain: elsewhere",
		strings.ReplaceAll(strings.ReplaceAll(text, "hour", "minute"), "day", "second"),
		"{domain: shop, descriptors: [{key: user}, {key: p*, descriptors: [{key: path}]}]}",
	} {
		for _, l := range was.Limits {
			if got := load(t, Options{}, other).Counterpart(l); got != nil {
				t.Errorf("%s %s has the counterpart %s, want none in:\n%s", l.Rule.Path(), l, got, other)
			}
		}
	}
}

// TestChangesOmitCommonFields checks that fields that did not change are not repeated.
func TestChangesOmitCommonFields(t *testing.T) {
	rule := func(fields string) *Set {
		return load(t, Options{}, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, "+fields+"}}]}")
	}
	for _, tt := range []struct{ was, is, want string }{
		{"requests_per_unit: 5, name: a, count_refused: false", "requests_per_unit: 0, name: a, count_refused: false", "shop: user 5/hour -> 0/hour"},
		{"requests_per_unit: 5, name: a", "requests_per_unit: 5, name: b", `shop: user 5/hour, name: "a" -> 5/hour, name: "b"`},
		{"requests_per_unit: 15, name: a", "requests_per_unit: 5, name: a", "shop: user 15/hour -> 5/hour"},
		{"requests_per_unit: 5, algorithm: token_bucket, burst: 7", "requests_per_unit: 6, algorithm: token_bucket, burst: 7", "shop: user 5/hour -> 6/hour"},
	} {
		if got := rule(tt.is).Changes(rule(tt.was)).First; len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s -> %s is %q, want %q", tt.was, tt.is, got, tt.want)
		}
	}
}
