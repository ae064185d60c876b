package kustomize

import (
	"maps"
	"strings"
	"testing"
)

// overlays are those that there are, each with the components that fit it.
var overlays = map[string][]string{
	"standalone": {},
}

// combos returns each overlay with each set of components that fit it.
func combos() []combo {
	var all []combo
	for overlay, fitting := range overlays {
		for set := range 1 << len(fitting) {
			c := combo{overlay: overlay}
			for i, component := range fitting {
				if set>>i&1 == 1 {
					c.components = append(c.components, component)
				}
			}
			all = append(all, c)
		}
	}
	return all
}

func TestCombinations(t *testing.T) {
	t.Parallel()
	files, err := manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range combos() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			for _, found := range files.examine(c) {
				t.Error(found)
			}
		})
	}
}

// TestMistakesAreFound plants one mistake after another.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	files, err := manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Run(m.file+"/"+m.new, func(t *testing.T) {
			t.Parallel()
			if strings.Count(files[m.file], m.old) == 0 {
				t.Fatalf("%s has no %q", m.file, m.old)
			}
			wrong := maps.Clone(files)
			wrong[m.file] = strings.Replace(files[m.file], m.old, m.new, 1)
			found := strings.Join(wrong.examine(m.in), "\n")
			if !strings.Contains(found, m.want) {
				t.Errorf("found %q, want %q", found, m.want)
			}
		})
	}
}

// mistakes are edits of a file that a combination must not pass with.
var mistakes = []struct {
	in             combo
	file, old, new string
	want           string
}{
	{combo{overlay: "standalone"}, "base/deployment.yaml", "enableServiceLinks:", "enableServiceLink:", `unknown field "spec.template.spec.enableServiceLink"`},
	{combo{overlay: "standalone"}, "base/deployment.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
	{combo{overlay: "standalone"}, "base/deployment.yaml", "drop: [ALL]", "drop: [KILL]", "capabilities"},
	{combo{overlay: "standalone"}, "base/kustomization.yaml", "- service.yaml", "- services.yaml", "build: "},
}
