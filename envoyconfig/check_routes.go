package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// takenPaths are the paths whose requests the first routes of a virtual host take.
type takenPaths struct {
	prefixes map[string]*route
	lengths  []int // lengths of the prefixes
	// headers maps a header to the paths whose requests with it go to earlier routes.
	headers map[string]*takenPaths
}

func newTakenPaths() *takenPaths {
	return &takenPaths{prefixes: map[string]*route{}, headers: map[string]*takenPaths{}}
}

// add adds the paths whose requests all go to a route.
func (t *takenPaths) add(r *route) {
	paths := t
	match := r.node.Field("match")
	if r.fragment || len(match.Nodes) == 0 {
		return
	}
	for f := range match.Fields() {
		switch tree.SnakeCase(f.Name) {
		case "prefix", "case_sensitive":
		case "headers":
			if len(f.Nodes) != 1 || !f.Nodes[0].Field("present_match").Bool(false) ||
				f.Nodes[0].Field("invert_match").Bool(false) {
				return
			}
			name := strings.ToLower(f.Nodes[0].Field("name").Text)
			if t.headers[name] == nil {
				t.headers[name] = newTakenPaths()
			}
			paths = t.headers[name]
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
	if paths.prefixes[prefix] == nil {
		paths.prefixes[prefix] = r
		if !slices.Contains(paths.lengths, len(prefix)) {
			paths.lengths = append(paths.lengths, len(prefix))
		}
	}
}

// reason returns why no request takes a route after those of t; empty if some may.
func (t *takenPaths) reason(r *route) string {
	switch other, prefix := t.find(r); {
	case other == nil:
		return ""
	case prefix == "":
		return "no request reaches the route, because the route at " + other.node.Pos().String() +
			" matches every request"
	default:
		return "no request reaches the route, because the route at " + other.node.Pos().String() +
			" matches every path that begins with " + rules.Shorten(prefix)
	}
}

// find returns the route that takes all paths of r, which begin with the prefix; nil if there is none.
func (t *takenPaths) find(r *route) (other *route, prefix string) {
	if r.node.At("match", "connect_matcher").Exists() { // CONNECT has no path, and paths do not match it
		return nil, ""
	}
	if other = t.prefixes[""]; other != nil {
		return other, ""
	}
	text := r.pathLiteral().Text
	if r.fragment || !r.node.At("match", "case_sensitive").Bool(true) {
		return nil, ""
	}
	for _, n := range t.lengths {
		if n <= len(text) && t.prefixes[text[:n]] != nil {
			return t.prefixes[text[:n]], text[:n]
		}
	}
	return nil, ""
}

// takenReasons returns, for each policy of a list, why a route sends none of its descriptors: an earlier route takes the
// requests with a header that the policy needs. It returns nil if the route sends all.
func (k *checker) takenReasons(m *manager, taken *takenPaths, r *route, c *checkedList) (all []string) {
	if c.free && len(taken.headers) == 0 {
		return nil
	}
	c.free = true
	for i, e := range c.all {
		why := ""
		for name, t := range taken.headers {
			other, _ := t.find(r)
			if other != nil && slices.Contains(e.conditions, withHeader(name)) && !m.mayAddHeader(c.limiter, name) {
				why = fmt.Sprintf("the route at %v takes all requests %s before", other.node.Pos(), withHeader(name))
			}
		}
		if before, ok := k.taken[e.node]; !ok || before != "" { // no other route sends it
			k.taken[e.node] = why
		}
		if why == "" {
			continue
		}
		c.free = false
		if all == nil {
			all = make([]string, len(c.all))
		}
		all[i] = why
	}
	return all
}

// mayAddHeader reports whether a filter before another one may add a request header.
func (m *manager) mayAddHeader(limiter *filter, name string) bool {
	return slices.ContainsFunc(m.before(limiter), func(f *filter) bool { return f.mayAddHeader(name) })
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

// answeredBefore returns why no request reaches the rate limit filters: a health check filter answers all of them.
func (m *manager) answeredBefore() string {
	for _, f := range m.filters {
		if f.typeName == api.RateLimit {
			break
		}
		headers := f.config.Field("headers")
		answers := f.typeName == healthCheck && !f.disabled && !f.config.Field("pass_through_mode").Bool(true)
		if answers && len(headers.Nodes) > 0 && allElements(headers, matchesEveryPath) && len(f.perRouteStrings) == 0 {
			return fmt.Sprintf("the health check filter at %v answers every request", f.node.Pos())
		}
	}
	return ""
}

// matchesEveryPath reports whether a header matcher matches every request with a path.
func matchesEveryPath(n *tree.Node) bool {
	everyPath := n.Field("name").Text == ":path" && n.At("string_match", "prefix").Text == "/" &&
		!n.Field("invert_match").Bool(false)
	return everyPath || isAlwaysPresent(n)
}
