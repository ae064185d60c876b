package rulefile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inPieces reads a file at once and in pieces of the given size, and compares the results. It
// reports whether the file can be read in pieces.
func inPieces(t *testing.T, content []byte, size int) bool {
	t.Helper()
	list := findLongList(content, size)
	if list == nil {
		return false
	}
	p, got := parseWith("f.yaml", content, list, nil)
	if list.broken || list.node == nil {
		return false
	}
	whole, want := parseWith("f.yaml", content, nil, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules read in pieces differ (-at once +in pieces):\n%s", diff)
	}
	if diff := cmp.Diff(whole.sorted(), p.sorted()); diff != "" {
		t.Errorf("diagnostics read in pieces differ (-at once +in pieces):\n%s", diff)
	}
	return true
}

func TestParseInPieces(t *testing.T) {
	items := func(indent string) string {
		var b strings.Builder
		for i := range 20 {
			fmt.Fprintf(&b, "%[1]s- key: k # comment\n%[1]s  value: v%[2]d\n\n# comment\n%[1]s  rate_limit: {unit: day, requests_per_unit: %[2]d}\n", indent, i)
		}
		return b.String()
	}
	const head = "domain: d\ndescriptors:\n"
	for _, tt := range []struct {
		name, content string
		want          bool
	}{
		{"one list", head + items("  "), true},
		{"not indented", head + items(""), true},
		{"the list first", "descriptors: # all\n\n# comment\n" + items("") + "domain: d\n", true},
		{"with CRLF", strings.ReplaceAll(head+items("  "), "\n", "\r\n"), true},
		{"the list of the first document", head + items("  ") + "---\ndomain: e\ndescriptors:\n" + items("  "), true},
		{"after other documents", "domain: e\n---\n" + head + items(""), true},
		{"mistakes", head + items("  ") + "  - key: 7.5\n  - {ky: k}\n  -\n  - key: k\n    valeu: v\n" + items("  ") + "max_counters: no\nnone: 1\n", true},
		{"templates", head + items("  ") + "  - key: {{ k }}\n" + items("  "), true},
		{"blocks of text", head + items("  ") + "  - key: |\n      - key: a\n    value: >-\n      - b\n" + items("  "), true},
		{"duplicate fields", head + items("  ") + "descriptors:\n" + items("  "), true},
		{"an anchor in one piece", head + items("  ") + "  - &a {key: a}\n  - *a\n", true},

		{"an anchor of another piece", head + "  - key: a\n    rate_limit: &l {unit: day, requests_per_unit: 1}\n" + items("  ") + "  - key: b\n    rate_limit: *l\n", false},
		{"no YAML", head + items("  ") + "  - key: [\n" + items("  "), false},
		{"text over several lines", head + items("  ") + "  - key: \"" + strings.Repeat("\n  - key: b", 100) + "\"\n" + items("  "), false},
		{"a directive", "%TAG ! tag:example.com:\n---\n" + head + items("  "), false},
		{"a list in one line", "domain: d\ndescriptors: [" + strings.Repeat("{key: a}, ", 100) + "]", false},
		{"a list in brackets", "domain: d\ndescriptors:\n  [" + strings.Repeat("{key: a},\n  ", 100) + "]", false},
		{"within text", "domain: \"d\ndescriptors:\n" + items("  ") + "\"", false},
		{"a map", "domain: d\ndescriptors:\n" + strings.Repeat("  key: a\n", 100), false},
		{"an item with wrong indentation", head + items("  ") + " - key: a\n" + items("  "), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := inPieces(t, []byte(tt.content), 100); got != tt.want {
				t.Errorf("read in pieces: %t, want %t", got, tt.want)
			}
		})
	}
}

// FuzzPieces splits files into pieces of the minimum size.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("domain: d\ndescriptors:\n- key: a\n  value: \"b\n- c\"\n- key: &x b\n- key: *x\n..."))
	f.Add([]byte("descriptors:\n  - key: |\n    - b\n  - ? a\n    : - key: c\n  -\n# c\ndomain: d\n---\ndomain: e"))
	f.Add([]byte("descriptors:\n -\n !"))
	f.Add([]byte("descriptors:\r \n-"))
	f.Add([]byte("%YAML 1.1\n---\ndescriptors:\n - !!map {key: a}\n - - key: b\n - \"\n\"\ndescriptors: []\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) < 10_000 {
			inPieces(t, content, 1)
		}
	})
}
