package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sameText has pairs of fields that select different values, but have the same text in paths.
var sameText = []struct{ a, valueOfA, b, valueOfB string }{
	{"values: [a, b]", "a", `values: ["a,b"]`, "a,b"},
	{"values: [10.0.0.0/8]", "10.0.0.0/8", "cidr: [10.0.0.0/8]", "10.1.1.1"},
}

// TestSetsWithOneText checks that sets of values with the same text have their own counters, and
// that a reload of the same rules is not a change.
func TestSetsWithOneText(t *testing.T) {
	for _, tt := range sameText {
		s := load(t, Options{}, `
domain: d
descriptors:
  - { key: k, `+tt.a+`, share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: k, `+tt.b+`, share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 5 } }
`)
		var a, b Plan
		namer := NewNamer("", nil)
		reqA := &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("k", tt.valueOfA)}}
		reqB := &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("k", tt.valueOfB)}}
		s.Plan(&a, reqA, Global{})
		s.Plan(&b, reqB, Global{})
		namer.Name(&a, reqA)
		namer.Name(&b, reqB)
		if a.Limits[0] == b.Limits[0] || a.Batch.Charges[0].ID == b.Batch.Charges[0].ID || string(a.Names[0]) == string(b.Names[0]) {
			t.Errorf("%s and %s share a counter", tt.a, tt.b)
		}
		if c := s.Changes(s); c.Total() != 0 {
			t.Errorf("%s and %s: a reload without changes reports %v", tt.a, tt.b, c.First)
		}
		for _, l := range s.Limits {
			if got := s.Counterpart(l); got != l {
				t.Errorf("%s at %s has the counterpart %v", l.Rule.Path(), l.Pos, got)
			}
		}
	}
}

// TestSharedCounterOfChangedList checks which changes of a list begin a new counter.
func TestSharedCounterOfChangedList(t *testing.T) {
	counter := func(fields, value string) any {
		s := load(t, Options{}, "domain: d\ndescriptors:\n  - { key: k, share_threshold: true, "+fields+", rate_limit: { unit: minute, requests_per_unit: 1 } }")
		return plan(s, Global{}, desc("k", value)).Batch.Charges[0].ID
	}
	for _, tt := range []struct {
		value, old, now string
		same            bool
	}{
		{"a", "values: [a, b, c, d]", "values: [a, b, c, e]", true},
		{"a", "values: [a, b, c, d]", "values: [a, b, c]", false},
		{"a", "values: [a, b, c, d]", "values: [a, b, x, d]", false},
		{"10.1.1.1", "cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8]", "cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 14.0.0.0/8]", true},
		{"10.1.1.1", "cidr: [10.0.0.0/8, 11.0.0.0/8]", "cidr: [10.0.0.0/8, 12.0.0.0/8]", false},
	} {
		if same := counter(tt.old, tt.value) == counter(tt.now, tt.value); same != tt.same {
			t.Errorf("%s and %s share a counter: %v, want %v", tt.old, tt.now, same, tt.same)
		}
	}
}

func TestChangesOfSets(t *testing.T) {
	const limit = ", rate_limit: { unit: minute, requests_per_unit: 1 } }"
	set := func(fields string) *Set {
		return load(t, Options{}, "domain: d\ndescriptors:\n  - { key: k, "+fields+limit)
	}
	for _, tt := range []struct {
		old, now string
		want     []string
	}{
		{"cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8, 14.0.0.0/8]", "cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 14.0.0.0/8, 13.0.0.0/8]", nil},
		{
			"cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8]", "cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 14.0.0.0/8]",
			[]string{"d: k=10.0.0.0/8,11.0.0.0/8,12.0.0.0/8+1 has other values or ranges"},
		},
		{"values: [a, b, c, d]", "values: [a, b, c, e]", []string{"d: k=a,b,c+1 has other values or ranges"}},
		{"prefix: { v4: 32, v6: 128 }", "shadow_mode: false", nil},
		{"shadow_mode: false", "prefix: { v4: 32, v6: 128 }", nil},
	} {
		if diff := cmp.Diff(tt.want, set(tt.now).Changes(set(tt.old)).First); diff != "" {
			t.Errorf("%s -> %s: %s", tt.old, tt.now, diff)
		}
	}
	if a, b := set("values: [none]"), set("denied_response: none"); a.Hash == b.Hash {
		t.Error("values: [none] and denied_response: none have the same hash")
	}
}

// TestOverrideOfNetworkCountsValuesAsSent checks what docs/rules.md says of limits in requests.
func TestOverrideOfNetworkCountsValuesAsSent(t *testing.T) {
	s := load(t, Options{}, rangeRules)
	for _, key := range []string{"a", "net", "shared"} {
		if id(t, s, "d", desc(key, "10.1.2.3:80").limit(1, 3, 0)) == id(t, s, "d", desc(key, "10.1.2.3:81").limit(1, 3, 0)) {
			t.Errorf("%s: overrides of two ports share a counter", key)
		}
	}
}
