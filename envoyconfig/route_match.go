package envoyconfig

import (
	"net/http"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// routeMatch is a RouteMatch.
type routeMatch struct {
	path    func(x *exchange, path string) verdict
	headers headerMatchers
	query   queryMatchers
	// unsupported is the name of a field that depends on more than the request; empty if there is none.
	unsupported string
}

func newRouteMatch(n *tree.Node) routeMatch {
	m := routeMatch{
		path: newPathMatcher(n), headers: newHeaderMatchers(n.Field("headers")), query: newQueryMatchers(n.Field("query_parameters")),
	}
	if n.Field("grpc").Exists() {
		m.headers = append(m.headers, headerMatcher{name: "content-type", text: isGRPC})
	}
	for _, name := range []string{"runtime_fraction", "tls_context", "dynamic_metadata", "filter_state", "cookies"} {
		if f := n.Field(name); f.Exists() && (f.Kind != tree.List || len(f.Nodes) > 0) {
			m.unsupported = name
			break
		}
	}
	return m
}

func isGRPC(contentType string) verdict {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return verdict{yes: ok && (rest == "" || rest[0] == '+')}
}

// pathComparisons are the ways in which a RouteMatch compares paths.
var pathComparisons = []comparison{{"prefix", strings.HasPrefix}, {"path", isEqual}, {"path_separated_prefix", func(path, want string) bool {
	rest, ok := strings.CutPrefix(path, want)
	return ok && (rest == "" || rest[0] == '/')
}}}

func newPathMatcher(n *tree.Node) func(x *exchange, path string) verdict {
	match := newComparer(n, pathComparisons, !n.Field("case_sensitive").Bool(true))
	if regex := n.Field("safe_regex"); regex.Exists() {
		match = newRegex(regex)
	}
	switch {
	case match != nil:
		return func(x *exchange, path string) verdict {
			if x.Method == http.MethodConnect { // such a request has no path
				return verdict{}
			}
			return match(path)
		}
	case n.Field("connect_matcher").Exists():
		return func(x *exchange, _ string) verdict { return verdict{yes: x.Method == http.MethodConnect} }
	default:
		return func(*exchange, string) verdict {
			return verdict{unknown: "match: a path matcher that sluice does not support"}
		}
	}
}

// match reports whether the route matches the request, if no earlier route does.
func (m *routeMatch) match(x *exchange) verdict {
	if why := x.unknownPathReason(); why != "" {
		return verdict{unknown: "path: " + why}
	}
	path := x.pathOnly()
	if x.manager.table.node.Field("ignore_path_parameters_in_path_matching").Bool(false) {
		path, _, _ = strings.Cut(path, ";")
	}
	v := m.path(x, path)
	if v.yes && v.unknown == "" {
		v = m.headers.match(x)
	}
	if v.yes && v.unknown == "" && len(m.query) > 0 {
		v = m.query.match(x.rawQuery())
	}
	if v.yes && v.unknown == "" && m.unsupported != "" {
		v = verdict{unknown: m.unsupported}
	}
	return v
}
