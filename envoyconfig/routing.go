package envoyconfig

import (
	"net/http"
	"strconv"
	"strings"
)

// host returns the virtual host of an authority, nil if there is none: an exact name, the
// longest that begins with a star, the longest that ends with one, and the star.
func (t *table) host(authority string) *virtualHost {
	name := lower(authority)
	if t.node.field("ignore_port_in_host_matching").yes(false) {
		if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
			name = name[:i]
		}
	}
	var exact, suffix, prefix, every *virtualHost
	longestSuffix, longestPrefix := 0, 0
	for _, h := range t.hosts {
		for _, domain := range h.domains {
			domain = lower(domain)
			switch rest, star := strings.CutPrefix(domain, "*"); {
			case domain == "*":
				every = h
			case star:
				if len(name) > len(rest) && strings.HasSuffix(name, rest) && len(rest) > longestSuffix {
					suffix, longestSuffix = h, len(rest)
				}
			case strings.HasSuffix(domain, "*"):
				rest := domain[:len(domain)-1]
				if len(name) > len(rest) && strings.HasPrefix(name, rest) && len(rest) > longestPrefix {
					prefix, longestPrefix = h, len(rest)
				}
			case domain == name:
				exact = h
			}
		}
	}
	for _, h := range []*virtualHost{exact, suffix, prefix, every} {
		if h != nil {
			return h
		}
	}
	return nil
}

// isForAll reports whether one virtual host takes every authority.
func (t *table) isForAll() bool {
	return len(t.hosts) == 1 && len(t.hosts[0].domains) == 1 && t.hosts[0].domains[0] == "*"
}

// named returns the only route of a name, nil if there is none or there are several.
func (t *table) named(name string) (h *virtualHost, found *route) {
	if name == "" {
		return nil, nil
	}
	for _, host := range t.hosts {
		for _, r := range host.routes {
			if r.node.field("name").str() != name {
				continue
			}
			if found != nil {
				return nil, nil
			}
			h, found = host, r
		}
	}
	return h, found
}

// pick returns the first route of the host that matches; nil if none does. Unknown says why
// it cannot be known.
func (h *virtualHost) pick(x *exchange) (r *route, unknown string) {
	if h.node.field("matcher").there() {
		return nil, "matcher: a tree of matchers at " + h.node.field("matcher").pos().String()
	}
	for _, r := range h.routes {
		switch v := r.match.takes(x); {
		case v.unknown != "":
			return nil, v.unknown + ", in the route at " + r.node.pos().String()
		case v.yes:
			return r, ""
		}
	}
	return nil, ""
}

// routeMatch is a RouteMatch: which requests take a route.
type routeMatch struct {
	path    func(x *exchange, path string) verdict
	headers headerMatchers
	query   queryMatchers
	// rest is a field that depends on more than the request; empty if there is none.
	rest string
}

func newRouteMatch(n *node) routeMatch {
	m := routeMatch{path: newPathMatcher(n), headers: newHeaderMatchers(n.field("headers")), query: newQueryMatchers(n.field("query_parameters"))}
	if n.field("grpc").there() {
		m.headers = append(m.headers, headerMatcher{name: "content-type", match: isGRPC})
	}
	for _, name := range []string{"runtime_fraction", "tls_context", "dynamic_metadata", "filter_state", "cookies"} {
		if f := n.field(name); f.there() && (f.kind != list || len(f.nodes) > 0) {
			m.rest = name
			break
		}
	}
	return m
}

func isGRPC(contentType string) verdict {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return verdict{yes: ok && (rest == "" || rest[0] == '+')}
}

func newPathMatcher(n *node) func(x *exchange, path string) verdict {
	if regex := n.field("safe_regex"); regex.there() {
		match := newRegex(regex)
		return func(_ *exchange, path string) verdict { return match(path) }
	}
	folded := func(s string) string { return s }
	if !n.field("case_sensitive").yes(true) {
		folded = lower
	}
	is := func(want *node, match func(path, want string) bool) func(x *exchange, path string) verdict {
		text := folded(want.str())
		return func(_ *exchange, path string) verdict { return verdict{yes: match(folded(path), text)} }
	}
	switch {
	case n.field("prefix").there():
		return is(n.field("prefix"), strings.HasPrefix)
	case n.field("path").there():
		return is(n.field("path"), func(path, want string) bool { return path == want })
	case n.field("path_separated_prefix").there():
		return is(n.field("path_separated_prefix"), func(path, want string) bool {
			rest, ok := strings.CutPrefix(path, want)
			return ok && (rest == "" || rest[0] == '/')
		})
	case n.field("connect_matcher").there():
		return func(x *exchange, _ string) verdict { return verdict{yes: x.Method == http.MethodConnect} }
	default:
		return func(*exchange, string) verdict {
			return verdict{unknown: "match: how it matches the path is not known here"}
		}
	}
}

// takes reports whether the request takes the route, if those before it do not.
func (m *routeMatch) takes(x *exchange) verdict {
	if why := x.pathUnknown(); why != "" {
		return verdict{unknown: "path: " + why}
	}
	path := x.pathOnly()
	if x.manager.table.node.field("ignore_path_parameters_in_path_matching").yes(false) {
		path, _, _ = strings.Cut(path, ";")
	}
	v := m.path(x, path)
	if v.yes && v.unknown == "" {
		v = m.headers.match(x)
	}
	if v.yes && v.unknown == "" && len(m.query) > 0 {
		v = m.query.match(x.rawQuery())
	}
	if v.yes && v.unknown == "" && m.rest != "" {
		v = verdict{unknown: m.rest}
	}
	return v
}

// cluster returns the name of the cluster that the request is to go to, "" if it has none.
func (x *exchange) cluster() (name, unknown string) {
	action := x.route.action
	if cluster := action.field("cluster"); cluster.there() {
		return cluster.str(), ""
	}
	if header := action.field("cluster_header").str(); header != "" {
		values, unknown := x.header(strings.ToLower(header))
		if unknown != "" || len(values) == 0 {
			return "", unknown
		}
		return values[0], ""
	}
	if of := action.at("weighted_clusters", "clusters").elements(); len(of) == 1 && of[0].field("name").there() {
		return of[0].field("name").str(), ""
	}
	return "", "the route has no single cluster"
}

// clusterMissing says why Envoy does not ask for want of a cluster to send the request to;
// empty if it has one, or may have.
func (x *exchange) clusterMissing() string {
	name, unknown := x.cluster()
	switch {
	case unknown != "":
		return ""
	case name == "":
		return "the request has no cluster to go to, since it lacks the header " + x.route.action.field("cluster_header").shown()
	case len(x.config.clusters) > 0 && x.config.clusters[name] == nil:
		return Unknowable + "the cluster " + strconv.Quote(name) + " is not in these files, and Envoy asks only where it has it"
	default:
		return ""
	}
}
