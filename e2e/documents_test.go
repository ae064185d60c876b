package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestMakefileNamesTestsThatExist checks the patterns that select tests: a renamed test would
// silently no longer be selected, or no longer be skipped.
func TestMakefileNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	must.OK(t, err)
	known := map[string]bool{}
	for name := range listTests(t) {
		_, test, _ := strings.Cut(name, ".Test")
		known[test] = true
	}
	patterns := regexp.MustCompile(`(?m)^(\w+) := .*\^Test\(([\w|]+)\)`).FindAllStringSubmatch(string(text), -1)
	if len(patterns) < 3 {
		t.Fatalf("the Makefile has %d patterns of tests, want 3 or more", len(patterns))
	}
	for _, pattern := range patterns {
		for test := range strings.SplitSeq(pattern[2], "|") {
			if !known[test] {
				t.Errorf("%s in the Makefile names Test%s, which does not exist", pattern[1], test)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// listTests returns the tests of this repository, with the directory of their package.
func listTests(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := fs.ReadFile(root, path)
			for _, name := range testFunction.FindAllSubmatch(text, -1) {
				known[filepath.ToSlash(filepath.Dir(path))+"."+string(name[1])] = true
			}
			return err
		}
		return nil
	})
	must.OK(t, err)
	return known
}
