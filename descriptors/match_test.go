package descriptors

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var update = flag.Bool("update-match", false, "rewrite testdata/match/*.golden")

// TestMatch plans the requests in the comments `#> key=value key=value` of each rule file, and
// compares the matching rule and its metric key with the golden file.
func TestMatch(t *testing.T) {
	files, err := filepath.Glob("testdata/match/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			must.OK(t, err)
			s := load(t, Options{}, string(content))
			var got strings.Builder
			for line := range strings.Lines(string(content)) {
				if request, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#>"); ok {
					fmt.Fprintf(&got, "%-22s %s\n", strings.TrimSpace(request), matched(t, s, parseEntries(request)))
				}
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(got.String()), 0o600))
			}
			want, err := os.ReadFile(golden)
			must.OK(t, err)
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// parseEntries reads `key=value key=value`.
func parseEntries(text string) []Entry {
	var entries []Entry
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		entries = append(entries, Entry{[]byte(key), []byte(value)})
	}
	return entries
}

// matched plans one descriptor and describes the matching rule and its metric key. It checks that
// Explain finds the same.
func matched(t *testing.T, s *Set, entries []Entry) string {
	t.Helper()
	p := plan(s, Global{}, Descriptor{Entries: entries})
	rule := p.Matches[0].Rule
	if x := s.Explain("d", entries); x.Rule != rule || (x.Reason == "") == (rule == nil) {
		t.Errorf("Explain(%s) = %+v, but the rule is %v", entries, x, rule)
	}
	if rule == nil {
		return "-"
	}
	key, key1End, key2End := rule.AppendMetricKey(nil, entries)
	key1, key2 := string(key[:key1End]), ""
	if key2End > 0 {
		key2 = string(key[key1End+1 : key2End])
	}
	return fmt.Sprintf("%s %v metric %s [%s] [%s]", rule.Path(), limits(p)[0], key, key1, key2)
}
