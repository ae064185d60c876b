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
		switch v := r.match(x); {
		case v.unknown != "":
			return nil, v.unknown + ", in the route at " + r.node.pos().String()
		case v.yes:
			return r, ""
		}
	}
	return nil, ""
}

func (r *route) match(x *exchange) verdict {
	n := r.node.field("match")
	for _, part := range []func(*exchange, *node) verdict{
		matchPath,
		func(x *exchange, n *node) verdict { return newHeaderMatchers(n.field("headers")).match(x) },
		func(x *exchange, n *node) verdict {
			return newQueryMatchers(n.field("query_parameters")).match(x.rawQuery())
		},
		matchGRPC,
		matchRest,
	} {
		if v := part(x, n); !v.yes || v.unknown != "" {
			return v
		}
	}
	return verdict{yes: true}
}

func matchPath(x *exchange, n *node) verdict {
	if why := x.pathUnknown(); why != "" {
		return verdict{unknown: "path: " + why}
	}
	path := x.pathOnly()
	if x.manager.table.node.field("ignore_path_parameters_in_path_matching").yes(false) {
		path, _, _ = strings.Cut(path, ";")
	}
	if regex := n.field("safe_regex"); regex.there() {
		return newRegex(regex)(path)
	}
	folded := func(n *node) string { return n.str() }
	if !n.field("case_sensitive").yes(true) {
		path = lower(path)
		folded = func(n *node) string { return lower(n.str()) }
	}
	switch {
	case n.field("prefix").there():
		return verdict{yes: strings.HasPrefix(path, folded(n.field("prefix")))}
	case n.field("path").there():
		return verdict{yes: path == folded(n.field("path"))}
	case n.field("path_separated_prefix").there():
		rest, ok := strings.CutPrefix(path, folded(n.field("path_separated_prefix")))
		return verdict{yes: ok && (rest == "" || rest[0] == '/')}
	case n.field("connect_matcher").there():
		return verdict{yes: x.Method == http.MethodConnect}
	default:
		return verdict{unknown: "match: how it matches the path is not known here"}
	}
}

func matchGRPC(x *exchange, n *node) verdict {
	if !n.field("grpc").there() {
		return verdict{yes: true}
	}
	isGRPC := func(s string) verdict {
		rest, ok := strings.CutPrefix(s, "application/grpc")
		return verdict{yes: ok && (rest == "" || rest[0] == '+')}
	}
	return headerMatcher{name: "content-type", match: isGRPC}.matchOne(x)
}

// matchRest looks at what depends on more than the request.
func matchRest(_ *exchange, n *node) verdict {
	for _, name := range []string{"runtime_fraction", "tls_context", "dynamic_metadata", "filter_state", "cookies"} {
		if f := n.field(name); f.there() && (f.kind != list || len(f.nodes) > 0) {
			return verdict{unknown: name}
		}
	}
	return verdict{yes: true}
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
