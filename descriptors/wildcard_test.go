package descriptors

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWildcardsHideDescriptors(t *testing.T) {
	const limit = "rate_limit: { unit: minute, requests_per_unit: 1 } }\n"
	var crowd strings.Builder
	for i := range maxCoverSearch {
		fmt.Fprintf(&crowd, "  - { key: crowd, value: %d-*, %s", i, limit)
	}
	_, ds := compile(t, Options{}, `domain: d
descriptors:
  - { key: user, `+limit+`  - { key: user, value: "*", `+limit+`  - { key: agent, value: bot-*, `+limit+`  - { key: agent, value: bot-a*, `+limit+
		`  - { key: agent, value: bot*, `+limit+`  - { key: agent, value: bot-a, `+limit+`  - { key: agent, `+limit+
		`  - { key: path, value: "*/a/*", `+limit+`  - { key: path, value: "/b/*/a/c*", `+limit+`  - { key: path, value: "/a", `+limit+
		`  - { key: host, value: a*, `+limit+`  - { key: host, value: ab*, `+limit[:len(limit)-1]+` # sluice:allow hides
  - { key: ho*, `+limit+`  - { key: host, value: "*c", `+limit+`  - { key: host, `+limit+crowd.String()+
		`  - { key: crowd, value: a*, `+limit+`  - { key: crowd, value: ab*, `+limit)
	want := []string{
		`a.yaml:11:5: warning: hides: domain "d" > key "path" value "/b/*/a/c*": no request reaches this descriptor, since path=*/a/* at a.yaml:10:5 matches all of its values first: move it up, or remove one of them`,
		`a.yaml:16:5: warning: hides: domain "d" > key "host" value "*c": no request reaches this descriptor, since ho* at a.yaml:15:5 matches all of its values first: move it up, or remove one of them`,
		`a.yaml:17:5: warning: hides: domain "d" > key "host": no request reaches this descriptor, since ho* at a.yaml:15:5 matches all of its values first: the key alone is tried after all wildcards, so remove one of them`,
		`a.yaml:3:5: warning: hides: domain "d" > key "user": no request reaches this descriptor, since user=* at a.yaml:4:5 matches all of its values first: the key alone is tried after all wildcards, so remove one of them`,
		`a.yaml:6:5: warning: hides: domain "d" > key "agent" value "bot-a*": no request reaches this descriptor, since agent=bot-* at a.yaml:5:5 matches all of its values first: move it up, or remove one of them`,
		`a.yaml:83:5: warning: hides: domain "d" > key "crowd" value "ab*": no request reaches this descriptor, since crowd=a* at a.yaml:82:5 matches all of its values first: move it up, or remove one of them`,
	}
	got := diagnosticTexts(ds)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
