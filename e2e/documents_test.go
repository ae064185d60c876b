package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTestsThatExist looks at pages whose tables name a test in each row:
// `package.TestName`, or `package.TestScripts/name` for one of testdata/.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	for page, untested := range map[string]bool{"docs/threats.md": false, "docs/failure-modes.md": false, "docs/rlqs.md": false, "docs/state.md": false} {
		text, err := os.ReadFile("../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range unheldRows(string(text), tests(t), untested) {
			t.Errorf("%s: %s", page, why)
		}
	}
}

// TestUnheldRows plants what must be found.
func TestUnheldRows(t *testing.T) {
	known := map[string]bool{"limiter.TestA": true, "cmd/sluice.TestScripts/b": true}
	for _, tt := range []struct {
		row      string
		untested bool
		want     string
	}{
		{"| what | `limiter.TestA`, `cmd/sluice.TestScripts/b` |", false, ""},
		{"| what | no test yet |", true, ""},
		{"| what | no test yet |", false, "names no test"},
		{"| what | somebody looked |", true, "names no test"},
		{"| what | `limiter.TestGone` |", false, "limiter.TestGone"},
		{"| what | `limiter.TestA`, `server.TestA` |", false, "server.TestA"},
		{"| what | `cmd/sluice.TestScripts/c` |", false, "TestScripts/c"},
	} {
		got := unheldRows("# Page\n\n| a | test |\n| --- | --- |\n"+tt.row+"\n", known, tt.untested)
		if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("unheldRows of %q = %q, want %q", tt.row, got, tt.want)
		}
	}
	if got := unheldRows("# Page\n", known, true); len(got) != 1 {
		t.Errorf("unheldRows of a page without a table = %q", got)
	}
}

var namedTest = regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)[A-Za-z0-9_/]*)`")

// unheldRows returns the rows that name no known test, of tables whose last column is
// "test". Rows may say "no test yet" where that is allowed.
func unheldRows(page string, known map[string]bool, untested bool) []string {
	var why []string
	in, rows := false, 0
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "| test |"):
			in = true
			continue
		case !strings.HasPrefix(line, "|"):
			in = false
			continue
		case !in || strings.HasPrefix(line, "| ---"):
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		named := namedTest.FindAllStringSubmatch(cells[len(cells)-1], -1)
		for _, name := range named {
			if !known[name[1]] {
				why = append(why, fmt.Sprintf("there is no %s, which %q names", name[1], cells[0]))
			}
		}
		if len(named) == 0 && (!untested || !strings.Contains(cells[len(cells)-1], "no test yet")) {
			why = append(why, fmt.Sprintf("%q names no test", cells[0]))
		}
	}
	if rows == 0 {
		why = append(why, "no table has a last column headed test")
	}
	return why
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// tests returns the tests of this repository by the folder of their package.
func tests(t *testing.T) map[string]bool {
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
		case strings.HasSuffix(path, "_test.go"):
			text, err := fs.ReadFile(root, path)
			for _, name := range testFunction.FindAllSubmatch(text, -1) {
				known[filepath.ToSlash(filepath.Dir(path))+"."+string(name[1])] = true
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}
