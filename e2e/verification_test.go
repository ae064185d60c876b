package e2e_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestVerificationPage checks the table of bounds in docs/verification.md: each promise is in the
// section that its row links to, with the same numbers. TestDocumentsNameExistingTests checks the
// names of tests.
func TestVerificationPage(t *testing.T) {
	text, err := os.ReadFile("../docs/verification.md")
	must.OK(t, err)
	bounds := rowsOf(string(text), "| promise | page | test |")
	for _, page := range []string{"algorithms.md", "store.md", "state-file.md", "rlqs.md", "sizing.md", "tables.md", "failure-modes.md"} {
		linked, err := os.ReadFile("../docs/" + page)
		must.OK(t, err)
		found := false
		for _, row := range bounds {
			promise, link := row[0], row[1]
			if strings.Contains(link, "]("+page+"#") {
				found = true
				for _, why := range wrongPromise(promise, link, string(linked)) {
					t.Error(why)
				}
			}
		}
		if !found {
			t.Errorf("the bounds of docs/%s name no test", page)
		}
	}
	for _, row := range bounds {
		if !strings.Contains(row[1], ".md#") {
			t.Errorf("%q links to no section", row[0])
		}
	}
}

func TestWrongPromise(t *testing.T) {
	const page = "# Page\n\nAt most 7.\n\n## Waits\n\nAt most 1,500 ms.\n```yaml\n# 9\n```\nOr 3.\n\n## Other\n\nAt most 5.\n"
	for _, tt := range []struct{ promise, id, want string }{
		{"at most 1,500 ms, or 3", "waits", ""},
		{"at most 9", "waits", ""},
		{"at most 7", "page", ""},
		{"at most 500 ms", "waits", "500"},
		{"at most 1 ms", "waits", "1"},
		{"at most 5", "waits", "5"},
		{"at most 5", "gone", "nothing"},
	} {
		got := wrongPromise(tt.promise, "[page](page.md#"+tt.id+")", page)
		if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("wrongPromise(%q, %q) = %q, want %q", tt.promise, tt.id, got, tt.want)
		}
	}
}

// rowsOf returns the cells of each row of the table with the given header.
func rowsOf(page, header string) (rows [][]string) {
	_, table, _ := strings.Cut(page, header+"\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

var (
	linkID = regexp.MustCompile(`\.md#([a-z0-9_-]+)\)`)
	number = regexp.MustCompile(`\d+(?:[.,]\d+)*`)
)

// wrongPromise returns the numbers of a promise that are not in the linked section of a page.
func wrongPromise(promise, link, page string) (why []string) {
	id := linkID.FindStringSubmatch(link)
	section := ""
	if id != nil {
		section = sectionOf(page, id[1])
	}
	if section == "" {
		return []string{"nothing is at " + link}
	}
	known := number.FindAllString(section, -1)
	for _, n := range number.FindAllString(promise, -1) {
		if !slices.Contains(known, n) {
			why = append(why, fmt.Sprintf("%q: %s is not in %s", promise, n, link))
		}
	}
	return why
}

// sectionOf returns the text between the heading with the given id and the next heading.
func sectionOf(page, id string) string {
	var section strings.Builder
	fence, within := false, false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fence = !fence
		}
		if !fence && strings.HasPrefix(line, "#") {
			within = hasHeading(line, id)
			continue
		}
		if within {
			section.WriteString(line)
		}
	}
	return section.String()
}
