package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// maxWidth is the maximum width of a line of prose. Lines in fenced blocks and lines with one of
// unwrappedPrefixes (tables, code and comments) may be longer.
const maxWidth = 100

var unwrappedPrefixes = []string{"|", "    ", "<!--"}

// TestPages checks every document: links to files and headings, targets of make, and the width of
// lines.
func TestPages(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	must.OK(t, err)
	pages := 0
	err = fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		pages++
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			return err
		}
		for _, why := range pageErrors(string(text), string(makefile), func(link string) (string, bool) {
			linked, err := os.ReadFile(filepath.Join("..", filepath.Dir(path), link))
			if info, statErr := os.Stat(filepath.Join("..", filepath.Dir(path), link)); statErr == nil && info.IsDir() {
				return "", true
			}
			return string(linked), err == nil
		}) {
			t.Errorf("%s: %s", path, why)
		}
		return nil
	})
	must.OK(t, err)
	if pages < 30 {
		t.Errorf("found %d documents, want 30 or more", pages)
	}
}

func TestPageErrors(t *testing.T) {
	linked := func(link string) (string, bool) {
		return "# Page\n\n## Is `this` it?\n", link == "page.md"
	}
	long := strings.Repeat("word ", 21)
	for _, tt := range []struct{ page, want string }{
		{"[a](page.md), [b](page.md#is-this-it), [c](https://example.com/), [d](#here)\n\n## Here\n", ""},
		{"[a](gone.md)", "gone.md"},
		{"[a](page.md#is-that-it)", "page.md#is-that-it"},
		{"[a](#there)\n", "#there"},
		{"    make lint\n\n`make test` and `make -s envoy`", ""},
		{"    make coffee", "make coffee"},
		{"use `make coffee`", "make coffee"},
		{long, "columns"},
		{"| " + long + " |\n```\n" + long + "\n```\n<!-- " + long + " -->", ""},
	} {
		got := pageErrors(tt.page, "lint: x ## y\ntest: z\nenvoy:\n", linked)
		if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("pageErrors(%q) = %q, want %q", tt.page, got, tt.want)
		}
	}
}

var (
	pageLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makeTarget = regexp.MustCompile("(?m)(?:^ {4}|`)make (?:-s )?([a-z][a-z0-9-]*)")
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInID    = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// pageErrors returns the errors in a page. linked returns the text of a linked file and whether it
// exists.
func pageErrors(page, makefile string, linked func(link string) (string, bool)) []string {
	var why []string
	for _, m := range pageLink.FindAllStringSubmatch(page, -1) {
		link, id, _ := strings.Cut(m[1], "#")
		text, found := page, true
		switch {
		case strings.Contains(link, "://"):
			continue
		case link != "":
			text, found = linked(link)
		}
		if !found || id != "" && !hasHeading(text, id) {
			why = append(why, "nothing is at "+m[1])
		}
	}
	for _, m := range makeTarget.FindAllStringSubmatch(page, -1) {
		if !strings.Contains("\n"+makefile, "\n"+m[1]+":") {
			why = append(why, "there is no make "+m[1])
		}
	}
	fence := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fence = !fence
		}
		free := fence || slices.ContainsFunc(unwrappedPrefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
		if utf8.RuneCountInString(line) > maxWidth && !free {
			why = append(why, "more than 100 columns: "+line)
		}
	}
	return why
}

// hasHeading reports whether a page has a heading with the given id, computed as by GitHub.
func hasHeading(page, id string) bool {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		if strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == id {
			return true
		}
	}
	return false
}

// TestDesignNamesExistingFiles checks that every file and directory in DESIGN.md exists, and that
// its table of packages is complete.
func TestDesignNamesExistingFiles(t *testing.T) {
	text, err := os.ReadFile("../DESIGN.md")
	must.OK(t, err)
	for _, m := range regexp.MustCompile("`([a-z0-9_]+(?:/[a-z0-9_.]+)+|[a-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join("..", m[1])); strings.Contains(m[1], "/") && err != nil {
			t.Errorf("DESIGN.md names %s: %v", m[1], err)
		}
	}
	_, table, _ := strings.Cut(string(text), "| package |")
	table, _, found := strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("DESIGN.md has no table of packages")
	}
	for _, p := range listPackages(t, "") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if !strings.Contains(table, "`"+path+"`") && !strings.Contains(table, "`"+filepath.Base(path)+"`") && !strings.HasPrefix(path, "e2e/") {
			t.Errorf("DESIGN.md's table of packages does not name %s", path)
		}
	}
}
