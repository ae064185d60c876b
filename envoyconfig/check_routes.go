package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// takenPaths are the paths whose requests the first routes of a virtual host take.
type takenPaths struct {
	prefixes map[string]*route
	lengths  []int // of the prefixes
}

// add adds the paths of which a route takes every request.
func (t *takenPaths) add(r *route) {
	match := r.node.Field("match")
	if r.fragment || len(match.Nodes) == 0 {
		return
	}
	for f := range match.Fields() {
		switch tree.SnakeCase(f.Name) {
		case "prefix", "case_sensitive":
		case "safe_regex":
			if !slices.Contains([]string{".*", "/.*", "^.*", "^/.*", "^.*$", "^/.*$"}, f.Field("regex").Text) {
				return
			}
		default:
			return
		}
	}
	prefix := match.Field("prefix").Text // empty for a regex
	if prefix == "/" {
		prefix = ""
	}
	if t.prefixes[prefix] == nil {
		t.prefixes[prefix] = r
		if !slices.Contains(t.lengths, len(prefix)) {
			t.lengths = append(t.lengths, len(prefix))
		}
	}
}

// reason returns why no request takes a route after those of t; empty if some may.
func (t *takenPaths) reason(r *route) string {
	if r.node.At("match", "connect_matcher").Exists() { // CONNECT has no path, and paths do not match it
		return ""
	}
	if other := t.prefixes[""]; other != nil {
		return "no request reaches the route, because the route at " + other.node.Pos().String() + " matches every request"
	}
	text := r.pathLiteral().Text
	if r.fragment || !r.node.At("match", "case_sensitive").Bool(true) {
		return ""
	}
	for _, n := range t.lengths {
		if n <= len(text) && t.prefixes[text[:n]] != nil {
			return "no request reaches the route, because the route at " + t.prefixes[text[:n]].node.Pos().String() + " matches every path that begins with " + rules.Shorten(text[:n])
		}
	}
	return ""
}

// pathLiteral returns the text with which a route compares the path or its beginning, or missing.
func (r *route) pathLiteral() *tree.Node {
	for _, c := range pathComparisons {
		if at := r.node.At("match", c.name); at.Exists() {
			return at
		}
	}
	return &tree.Missing
}

// neverTaken returns why no request matches a route; empty if some may.
func (m *manager) neverTaken(r *route) string {
	match := r.node.Field("match")
	if at := match.Field("runtime_fraction"); at.Exists() && m.runtime.percentOf(at) == (percentage{}) {
		return "runtime_fraction is 0 %, so no request takes the route"
	}
	switch path := r.pathLiteral(); {
	case path.Text == "" || r.fragment:
	case strings.ContainsAny(path.Text, "?#"):
		return "no request takes the route, since Envoy compares the path without the query"
	case path.Text[0] != '/' && path.Text[0] != '*':
		return "no request takes the route, since a path begins with /"
	}
	if len(match.Field("dynamic_metadata").Nodes) == 0 || m.fragments || m.selectsRouteAgain() {
		return ""
	}
	for n := range match.Field("dynamic_metadata").Elements() {
		if !n.Field("invert").Bool(false) {
			return "no request takes the route, since Envoy selects the route before filters set metadata, and no filter makes it select again"
		}
	}
	return ""
}

// selectsRouteAgain reports whether a filter makes Envoy select the route again, or may do so.
func (m *manager) selectsRouteAgain() bool {
	return slices.ContainsFunc(m.filters, (*filter).clearsRouteCache)
}

// checkRouteHeaders warns about a route that matches a header which a filter sets after Envoy has selected the route.
func (k *checker) checkRouteHeaders(m *manager, r *route) {
	headers := r.node.At("match", "headers")
	if len(headers.Nodes) == 0 || m.fragments || m.selectsRouteAgain() {
		return
	}
	for n := range headers.Elements() {
		name := strings.ToLower(n.Field("name").Text)
		for _, f := range m.filters {
			if setsHeader(f, name) {
				k.report(NoEffect, rules.Warning, n.Pos(), "Envoy selects the route before the filter at %v sets the header %s, so only requests of clients that send it take the route: use early_header_mutation_extensions", f.node.Pos(), rules.Shorten(name))
			}
		}
	}
}
