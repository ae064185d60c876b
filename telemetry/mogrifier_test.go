package telemetry

import (
	"slices"
	"strings"
	"testing"
)

func TestMogrifierUnmarshalText(t *testing.T) {
	m := mogrify(t, `a;b(.);name.$1;k:v$1`)
	if name, tags, ok := m.apply("xa;bcx"); !ok || name != "name.c" || !slices.Equal(tags, []Tag{{"k", "vc"}}) {
		t.Errorf("apply() = %q, %v, %v, want name.c with k:vc", name, tags, ok)
	}
	if _, _, ok := m.apply("other"); ok {
		t.Error("a pattern that does not match renames a metric")
	}
	for text, want := range map[string]string{
		"(;name;":      "missing closing )",
		"pattern":      "must be PATTERN;NAME;",
		";name;":       "with a pattern and a name",
		"pattern;;":    "with a pattern and a name",
		"p;n;:5":       `tag ":5": must be KEY:VALUE`,
		"p;n;k:1,k:2":  `tag "k" is repeated`,
		"p;n;k:1,,l:2": `tag "": must be KEY:VALUE`,
	} {
		if err := new(Mogrifier).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("UnmarshalText(%q) = %v, want an error with %q", text, err, want)
		}
	}
}
