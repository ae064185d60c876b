package telemetry

import (
	"slices"
	"strings"
	"testing"
)

func TestTagLabels(t *testing.T) {
	for _, tt := range []struct{ key, want string }{
		{"env", "env"},
		{"_addr2", "_addr2"},
		{"a-b.c", "a_b_c"},
		{"zoné", "zon_"},
		{"1a", "tag_1a"},
		{"__a", "tag___a"},
		{"version", "tag_version"},
		{"le", "tag_le"},
	} {
		labels, err := tagLabels([]Tag{{tt.key, "v"}, {"other", ""}})
		if err != nil || len(labels) != 2 || labels[tt.want] != "v" {
			t.Errorf("tagLabels(%q) = %v, %v, want a label %s", tt.key, labels, err, tt.want)
		}
	}
	for _, tt := range []struct {
		tags []Tag
		want string
	}{
		{[]Tag{{"a", "\xff"}}, "is not UTF-8"},
		{[]Tag{{"a.b", "b"}, {"a-b", "b"}}, `tag "a-b": another tag already results in the label a_b`},
	} {
		if err := CheckTags(tt.tags); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("CheckTags(%v) = %v, want %q", tt.tags, err, tt.want)
		}
		if _, err := New(Options{Tags: tt.tags}); err == nil {
			t.Errorf("New accepts the tags %v", tt.tags)
		}
	}
}

// TestTagsAreOnEverySeries also checks that ownLabels contains the labels of all series.
func TestTagsAreOnEverySeries(t *testing.T) {
	m, err := New(Options{Tags: []Tag{{"env", "prod"}, {"zone", "b"}, {"rule", "x"}}, Build: Build{Version: "v1"}})
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
				case l.GetName() == "env" && l.GetValue() == "prod", l.GetName() == "zone" && l.GetValue() == "b",
					l.GetName() == "tag_rule" && l.GetValue() == "x":
					tags++
				default:
					seen[l.GetName()] = true
				}
			}
			if tags != 3 {
				t.Errorf("%s has the labels %v, want all tags among them", f.GetName(), series.GetLabel())
			}
		}
	}
	for name := range seen {
		if !slices.Contains(ownLabels, name) {
			t.Errorf("the label %s is not in ownLabels", name)
		}
	}
}
