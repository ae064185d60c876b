package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestDocumentsNameExistingTests checks pages that name a test for each statement:
// `package.TestName`, or `package.TestScripts/name` for a script in testdata/.
func TestDocumentsNameExistingTests(t *testing.T) {
	known := listTests(t)
	for _, page := range []string{"docs/threats.md", "docs/failure-modes.md", "docs/rlqs.md", "docs/state.md", "docs/verification.md"} {
		text, err := os.ReadFile("../" + page)
		must.OK(t, err)
		for _, why := range untestedStatements(string(text), known) {
			t.Errorf("%s: %s", page, why)
		}
	}
}

// TestPagesNameExistingTests checks the names of tests in the text of all documents.
func TestPagesNameExistingTests(t *testing.T) {
	known := listTests(t)
	found := 0
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		pages, err := filepath.Glob("../" + pattern)
		must.OK(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			must.OK(t, err)
			for _, name := range namedTest.FindAllStringSubmatch(string(text), -1) {
				found++
				if !known[name[1]] {
					t.Errorf("%s: there is no %s", strings.TrimPrefix(page, "../"), name[1])
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("found %d names of tests, want 500 or more", found)
	}
}

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

func TestUntested(t *testing.T) {
	known := map[string]bool{"limiter.TestA": true, "cmd/sluice.TestScripts/b": true}
	for _, tt := range []struct{ tests, want string }{
		{"`limiter.TestA`,\n  `cmd/sluice.TestScripts/b`", ""},
		{"no test yet", "names no test"},
		{"`limiter.TestGone`", "limiter.TestGone"},
		{"`limiter.TestA`, `server.TestA`", "server.TestA"},
		{"`cmd/sluice.TestScripts/c`", "TestScripts/c"},
	} {
		row := "| what | " + strings.ReplaceAll(tt.tests, "\n", "") + " |\n"
		for _, page := range []string{
			"# Page\n\n| a | test |\n| --- | --- |\n" + row,
			"# Page\n\n### what\n\nText.\n\n- **Tests**: " + tt.tests + "\n\n## Other\n\nText.\n",
			"# Page\n\n### what\n\nText.\n\n- **Tests**: " + tt.tests + "\n\n### more\n\n- **Tests**: `limiter.TestA`\n",
		} {
			got := untestedStatements(page, known)
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("untestedStatements(%q) = %q, want %q", page, got, tt.want)
			}
		}
	}
	if got := untestedStatements("# Page\n\n### A\n\n- **Tests**: `limiter.TestA`\n\n### B\n\nText.\n", known); len(got) != 1 || !strings.Contains(got[0], `"B"`) {
		t.Errorf("untestedStatements of a section without tests among others = %q", got)
	}
	if got := untestedStatements("# Page\n", known); len(got) != 1 {
		t.Errorf("untestedStatements of a page without statements = %q", got)
	}
}

var (
	namedTest = regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)[A-Za-z0-9_/]*)`")
	testsItem = regexp.MustCompile(`(?m)^- \*\*Tests\*\*: ((?:.+\n?)+)`)
)

// untestedStatements returns the statements of a page that name no known test. A statement is a row
// of a table whose last column is headed "test", or a ### section of a ## part in which some
// section has an item Tests.
func untestedStatements(page string, known map[string]bool) []string {
	var why []string
	statements := 0
	check := func(statement, names string) {
		statements++
		named := namedTest.FindAllStringSubmatch(names, -1)
		for _, name := range named {
			if !known[name[1]] {
				why = append(why, fmt.Sprintf("there is no %s, which %q names", name[1], statement))
			}
		}
		if len(named) == 0 {
			why = append(why, fmt.Sprintf("%q names no test", statement))
		}
	}
	inTable := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "| test |"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && !strings.HasPrefix(line, "| ---"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			check(cells[0], cells[len(cells)-1])
		}
	}
	for part := range strings.SplitSeq(page, "\n## ") {
		if !testsItem.MatchString(part) {
			continue
		}
		for _, section := range strings.Split(part, "\n### ")[1:] {
			title, text, _ := strings.Cut(section, "\n")
			names := ""
			if m := testsItem.FindStringSubmatch(text); m != nil {
				names = m[1]
			}
			check(title, names)
		}
	}
	if statements == 0 {
		why = append(why, "no statement names a test")
	}
	return why
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
		case filepath.Dir(path) == "cmd/sluice/testdata" && strings.HasSuffix(path, ".txt"):
			known["cmd/sluice.TestScripts/"+strings.TrimSuffix(d.Name(), ".txt")] = true
		case filepath.Dir(path) == "cmd/sluice/testdata/clock" && strings.HasSuffix(path, ".txt"):
			known["cmd/sluice.TestClockScripts/"+strings.TrimSuffix(d.Name(), ".txt")] = true
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
