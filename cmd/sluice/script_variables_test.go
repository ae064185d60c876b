package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestScriptsSetEachVariable verifies that each supported variable is set by a script.
func TestScriptsSetEachVariable(t *testing.T) {
	set := scriptsThatSet(t)
	for v := range environment.All() {
		if v.Supported() && len(namesOf(v, set)) == 0 {
			t.Errorf("no script sets %s", v.Name)
		}
	}
}

// scriptsThatSet returns the paths of the scripts that set each variable.
func scriptsThatSet(tb testing.TB) map[string][]string {
	tb.Helper()
	var paths []string
	for _, pattern := range []string{"testdata/*.txt", "testdata/clock/*.txt", "testdata/store/*.txt"} {
		some, err := filepath.Glob(pattern)
		must.OK(tb, err)
		paths = append(paths, some...)
	}
	set := map[string][]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must.OK(tb, err)
		for _, line := range regexp.MustCompile("(?m)^variables (.*)$").FindAllSubmatch(text, -1) {
			for _, m := range regexp.MustCompile(`([A-Z_]+)=`).FindAllSubmatch(line[1], -1) {
				if name := string(m[1]); !slices.Contains(set[name], path) {
					set[name] = append(set[name], path)
				}
			}
		}
	}
	return set
}

// namesOf returns the names in set that are names of v, which may contain placeholders.
func namesOf(v *environment.Variable, set map[string][]string) (names []string) {
	pattern := regexp.MustCompile("^" + strings.NewReplacer("<NAME>", `\w+`, "*", `\w+`).Replace(v.Name) + "$")
	for name := range set {
		if pattern.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}
