package telemetry

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckTags(t *testing.T) {
	for _, tt := range []struct {
		tags []Tag
		want string
	}{
		{nil, ""},
		{[]Tag{{"env", "prod"}, {"_addr2", "10.0.0.1:80"}}, ""},
		{[]Tag{{"", "a"}}, "must be letters"},
		{[]Tag{{"1a", "b"}}, "must be letters"},
		{[]Tag{{"a-b", "c"}}, "must be letters"},
		{[]Tag{{"__a", "b"}}, "must be letters"},
		{[]Tag{{"domain", "a"}}, `tag "domain": series have a label of that name; taken are code, domain,`},
		{[]Tag{{"le", "a"}}, "series have a label"},
		{[]Tag{{"a", "\xff"}}, "is not UTF-8"},
		{[]Tag{{"a", "b"}, {"a", "b"}}, `tag "a" comes twice`},
	} {
		err := CheckTags(tt.tags)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("CheckTags(%v) = %v, want %q", tt.tags, err, tt.want)
		}
	}
	if _, err := New(Options{Tags: []Tag{{"rule", "x"}}}); err == nil {
		t.Error("New takes a tag that is a label of rules")
	}
}

// TestTagsAreOnEverySeries also holds ownLabels complete, by what series show.
func TestTagsAreOnEverySeries(t *testing.T) {
	m, err := New(Options{Tags: []Tag{{"env", "prod"}, {"zone", "b"}}, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	everySeries(t, m)
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			tags := 0
			for _, l := range series.GetLabel() {
				switch {
				case l.GetName() == "env" && l.GetValue() == "prod", l.GetName() == "zone" && l.GetValue() == "b":
					tags++
				default:
					seen[l.GetName()] = true
				}
			}
			if tags != 2 {
				t.Errorf("%s has %v, want the tags in it", f.GetName(), series.GetLabel())
			}
		}
	}
	for name := range seen {
		if !slices.Contains(ownLabels, name) {
			t.Errorf("the label %s is not in ownLabels", name)
		}
	}
}
