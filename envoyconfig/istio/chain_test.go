package istio

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// object returns an EnvoyFilter as text, with patches as returned by patch.
func object(meta, spec string, patches ...string) string {
	return fmt.Sprintf("{ kind: EnvoyFilter, metadata: { %s }, spec: { %s configPatches: [%s] } }", meta, spec, strings.Join(patches, ", "))
}

// patch returns a patch of HTTP filters as text.
func patch(context, operation, sub, value string) string {
	match := "context: " + context
	if sub != "" {
		match += ", listener: { filterChain: { filter: { name: " + "envoy.filters.network.http_connection_manager" + ", subFilter: { name: " + sub + " } } } }"
	}
	return fmt.Sprintf("{ applyTo: HTTP_FILTER, match: { %s }, patch: { operation: %s, value: { %s } } }", match, operation, value)
}

func read(t *testing.T, texts ...string) (all []*EnvoyFilter) {
	t.Helper()
	for _, text := range texts {
		roots, err := tree.Read("f", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Read(&roots[0]))
	}
	return all
}

// added returns, for each chain, the names of the filters that patches add and of the router.
func added(chains []Chain) (all []string) {
	for _, c := range chains {
		var names []string
		for _, f := range c.HTTPFilters() {
			if name := f.Field("name").Text; !slices.Contains(generatedFilters, name) || name == Router {
				names = append(names, strings.TrimPrefix(name, "envoy.filters.http."))
			}
		}
		all = append(all, strings.Join(names, " "))
	}
	return all
}

// TestPatchOrder checks that patches are applied in istiod's order: by priority, root namespace first, then in the order
// of the files.
func TestPatchOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []string
		want    string
	}{
		"in file order":         {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "INSERT_BEFORE", Router, "name: b"))}, "a b router"},
		"the first place":       {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "INSERT_FIRST", Router, "name: b"))}, "b a router"},
		"before all":            {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "INSERT_BEFORE", "", "name: b"))}, "b a router"},
		"after another":         {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "INSERT_FIRST", "", "name: b"), patch("ANY", "INSERT_AFTER", "b", "name: c"))}, "b c a router"},
		"after the router":      {[]string{object("", "", patch("ANY", "INSERT_AFTER", Router, "name: a"), patch("ANY", "ADD", "", "name: b"), patch("ANY", "INSERT_AFTER", "", "name: c"))}, "router a b c"},
		"in place of another":   {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "REPLACE", "a", "name: b"))}, "b router"},
		"removed":               {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a"), patch("ANY", "REMOVE", "a", ""))}, "router"},
		"removed before":        {[]string{object("", "priority: 10,", patch("ANY", "INSERT_BEFORE", Router, "name: a")), object("", "", patch("ANY", "REMOVE", "a", ""))}, "a router"},
		"a negative priority":   {[]string{object("", "", patch("ANY", "INSERT_BEFORE", Router, "name: a")), object("", "priority: -1,", patch("ANY", "INSERT_BEFORE", Router, "name: b"))}, "b a router"},
		"the root namespace":    {[]string{object("namespace: x", "", patch("ANY", "INSERT_BEFORE", Router, "name: a")), object("namespace: istio-system", "", patch("ANY", "INSERT_BEFORE", Router, "name: b"))}, "b a router"},
		"nothing of that name":  {[]string{object("", "", patch("ANY", "INSERT_AFTER", "other", "name: a"))}, "a router"},
		"merged into another":   {[]string{object("", "", patch("ANY", "MERGE", "a", "name: b, typed_config: { y: 1 }"), patch("ANY", "INSERT_BEFORE", Router, "name: a, typed_config: { x: 1 }"))}, "b router"},
		"merged into an unseen": {[]string{object("", "", patch("ANY", "MERGE", "a", "name: b, typed_config: { y: 1 }"))}, "b router"},
	} {
		chains := Chains(read(t, tt.objects...))
		if got := added(chains); got[len(got)-1] != tt.want {
			t.Errorf("%s: the last chain is %q, want %q", name, got, tt.want)
		}
	}
}

// TestScopes covers EnvoyFilters with several selectors, namespaces and contexts.
func TestScopes(t *testing.T) {
	filter := func(name, context string) string { return patch(context, "INSERT_BEFORE", Router, "name: "+name) }
	labels := func(labels string) string { return "workloadSelector: { labels: { " + labels + " } }," }
	for name, tt := range map[string]struct {
		objects  []string
		complete bool
		want     []string
	}{
		"other labels":              {[]string{object("", labels("app: a"), filter("a", "ANY")), object("", labels("app: b"), filter("b", "ANY"))}, true, []string{"a router", "b router"}},
		"labels in others":          {[]string{object("", labels("app: a"), filter("a", "ANY")), object("", labels("app: a, v: b"), filter("b", "ANY"))}, false, []string{"a router", "a b router"}},
		"for all":                   {[]string{object("", "", filter("a", "ANY")), object("", labels("app: b"), filter("b", "ANY"))}, false, []string{"a router", "a b router"}},
		"other namespaces":          {[]string{object("namespace: x", "", filter("a", "ANY")), object("namespace: y", "", filter("b", "ANY"))}, true, []string{"a router", "b router"}},
		"contexts":                  {[]string{object("", "", filter("a", "GATEWAY"), filter("b", "SIDECAR_INBOUND"), filter("c", "ANY"))}, false, []string{"a c router", "b c router"}},
		"labels of other names":     {[]string{object("", labels("app: a"), filter("a", "ANY")), object("", labels("istio: b"), filter("b", "ANY"))}, false, []string{"a router", "b router"}},
		"complements":               {[]string{object("", labels("app: a"), filter("a", "ANY")), object("", labels("istio: b"), filter("b", "ANY"))}, true, []string{"a router", "b router", "a b router"}},
		"a target":                  {[]string{object("", "targetRefs: [{ kind: Gateway, name: g }],", filter("a", "ANY")), object("", "targetRefs: [{ kind: Gateway, name: h }],", filter("b", "ANY"))}, true, []string{"a router", "b router"}},
		"a namespace of a variable": {[]string{object("namespace: '{{ x }}'", "", filter("a", "ANY")), object("namespace: y", "", filter("b", "ANY"))}, false, []string{"a b router", "a b router"}},
	} {
		all := read(t, tt.objects...)
		for i, f := range all {
			f.Patches[0].AddsFilter, f.Patches[0].AddsPolicies = i == 0 && tt.complete, i > 0 && tt.complete
		}
		got := added(Chains(all))
		slices.Sort(got)
		slices.Sort(tt.want)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
