package rulefile

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocsListNewFields compares the list in docs/rules.md with the fields that
// envoyproxy/ratelimit lacks.
func TestDocsListNewFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(page), "\n## Fields that envoyproxy/ratelimit lacks\n")
	if !ok {
		t.Fatal("docs/rules.md has no section Fields that envoyproxy/ratelimit lacks")
	}
	list, _, _ = strings.Cut(list, ". ")
	got := []string{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
	}
	var want []string
	for _, v := range []fieldSet{rootFields, descriptorFields, limitFields} {
		for _, word := range v.names {
			if !slices.Contains(referenceFields, word) && !slices.Contains(want, word) {
				want = append(want, word)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/rules.md, Fields that envoyproxy/ratelimit lacks, does not list the fields of fieldsets.go (-fieldsets.go +page):\n%s", diff)
	}
}
