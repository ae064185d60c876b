package envoyconfig

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// table is a route configuration.
type table struct {
	node  *tree.Node
	hosts []*virtualHost
	// hash is equal for tables with equal virtual hosts.
	hash uint64
	// used is true if a connection manager uses the table.
	used bool
	// all are the levels, once they are known.
	all  []level
	once sync.Once
	// perRouteStrings are the strings in the per-route configurations of each filter.
	perRouteStrings map[string]map[string]bool
}

type virtualHost struct {
	node     *tree.Node
	name     string
	domains  []string
	policies []*policyList
	routes   []*route
}

type route struct {
	node *tree.Node
	// action is the RouteAction; missing for a direct response or a redirect, for which Envoy does not call
	// the service.
	action   *tree.Node
	match    routeMatch
	policies []*policyList
	// branches has a copy of the route for each entry of weighted_clusters if one of these configures filters;
	// otherwise it is empty.
	branches []*route
	// entry is the entry of weighted_clusters of a branch; nil for other routes.
	entry *tree.Node
	// fragment is true if the node is merged into a route that is otherwise unknown.
	fragment bool
}

func newTable(n *tree.Node) *table {
	t := &table{node: n, hash: n.Field("virtual_hosts").Hash()}
	for host := range n.Field("virtual_hosts").Elements() {
		h := newHost(host)
		h.routes = tree.Map(host.Field("routes"), newRoute)
		t.hosts = append(t.hosts, h)
	}
	return t
}

func newHost(n *tree.Node) *virtualHost {
	return &virtualHost{
		node: n, name: n.Field("name").Text, domains: tree.Texts(n.Field("domains")), policies: newPolicies(n.Field("rate_limits")),
	}
}

func newRoute(n *tree.Node) *route {
	action := n.Field("route")
	r := &route{
		node: n, action: action, match: newRouteMatch(n.Field("match")), policies: newPolicies(action.Field("rate_limits")),
	}
	r.branches = r.newBranches()
	return r
}

// level is a table, a virtual host or a route, with its rate_limits.
type level struct {
	*tree.Node

	policies []*policyList
}

// levels returns the table, its virtual hosts and its routes.
func (t *table) levels() []level {
	t.once.Do(func() {
		t.all = []level{{Node: t.node}}
		for _, h := range t.hosts {
			t.all = append(t.all, level{h.node, h.policies})
			for _, r := range h.routes {
				t.all = append(t.all, level{r.node, r.policies})
			}
		}
	})
	return t.all
}

// perRoutes returns the fields of a level that configure rate limit filters.
func (l level) perRoutes() (all []*tree.Node) {
	for f := range l.Field("typed_per_filter_config").Fields() {
		typeName, config := f.Typed()
		if typeName == api.FilterConfig {
			typeName, _ = config.Field("config").Typed()
		}
		if typeName == api.RateLimitPerRoute {
			all = append(all, f)
		}
	}
	return all
}

// host returns the virtual host for an authority; nil if there is none. In order of precedence: the exact name, the
// longest suffix wildcard, the longest prefix wildcard, "*".
func (t *table) host(authority string) *virtualHost {
	name := t.hostName(authority)
	var found *virtualHost
	best := -1
	for _, h := range t.hosts {
		for _, domain := range h.domains {
			if rank := rankOf(lowerASCII(domain), name); rank > best {
				found = h
				best = rank
			}
		}
	}
	return found
}

// hostName returns the text of an authority that domains match.
func (t *table) hostName(authority string) string {
	name := lowerASCII(authority)
	if t.node.Field("ignore_port_in_host_matching").Bool(false) {
		if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
			name = name[:i]
		}
	}
	return name
}

// hasAuthority reports whether a domain of the virtual host matches an authority.
func (h *virtualHost) hasAuthority(t *table, authority string) bool {
	name := t.hostName(authority)
	return slices.ContainsFunc(h.domains, func(domain string) bool { return rankOf(lowerASCII(domain), name) >= 0 })
}

// rankOf returns how well a domain matches a name: higher is better, -1 is no match.
func rankOf(domain, name string) int {
	const longest = 1 << 30
	ending, begins := strings.CutPrefix(domain, "*")
	beginning, ends := strings.CutSuffix(domain, "*")
	switch {
	case domain == "*":
		return 0
	case begins && len(name) > len(ending) && strings.HasSuffix(name, ending):
		return longest + len(ending)
	case begins:
		return -1
	case ends && len(name) > len(beginning) && strings.HasPrefix(name, beginning):
		return len(beginning)
	case domain == name:
		return 2 * longest
	default:
		return -1
	}
}

// matchesAnyHost reports whether one virtual host matches every authority.
func (t *table) matchesAnyHost() bool {
	return len(t.hosts) == 1 && len(t.hosts[0].domains) == 1 && t.hosts[0].domains[0] == "*"
}

// routeNamed returns the route with the given name; nil if none or several have it.
func (t *table) routeNamed(name string) (h *virtualHost, found *route) {
	if name == "" {
		return nil, nil
	}
	for _, host := range t.hosts {
		for _, r := range host.routes {
			if r.node.Field("name").Text != name {
				continue
			}
			if found != nil {
				return nil, nil
			}
			h = host
			found = r
		}
	}
	return h, found
}

// firstMatch returns the first matching route of the host; nil if none matches. unknown is the reason if the match
// cannot be determined.
func (h *virtualHost) firstMatch(x *exchange) (r *route, unknown string) {
	if h.node.Field("matcher").Exists() {
		return nil, "matcher: a matcher tree at " + h.node.Field("matcher").Pos().String()
	}
	for _, r := range h.routes {
		switch v := r.match.match(x); {
		case v.unknown != "":
			return nil, v.unknown + ", in the route at " + r.node.Pos().String()
		case v.yes:
			return r, ""
		}
	}
	return nil, ""
}

func (r *route) newBranches() (all []*route) {
	differ := false
	for entry := range r.action.At("weighted_clusters", "clusters").Elements() {
		if weight := entry.Field("weight"); weight.Exists() && weight.Uint(1) == 0 {
			continue
		}
		differ = differ || entry.Field("typed_per_filter_config").Exists()
		branch := *r
		branch.entry = entry
		all = append(all, &branch)
	}
	if !differ {
		return nil
	}
	return all
}

// branchesOrSelf returns the branches of a route, or the route itself if it has none.
func (r *route) branchesOrSelf() []*route {
	if len(r.branches) == 0 {
		return []*route{r}
	}
	return r.branches
}

// displayName returns the quoted name of the route for messages.
func (r *route) displayName() string {
	if name := r.node.Field("name").Text; name != "" {
		return "\"" + rules.Shorten(name) + "\""
	}
	return "without a name"
}

// redirectReason returns why the request is redirected to https without asking the service, or why that is unknown;
// empty if it is not redirected.
func (h *virtualHost) redirectReason(x *exchange) string {
	tls := h.node.Field("require_tls").Enum("NONE", "EXTERNAL_ONLY", "ALL")
	if tls == "NONE" {
		return ""
	}
	scheme, unknown := x.forwardedProto()
	if unknown != "" {
		return UnknownPrefix + "require_tls is " + tls + ": " + unknown
	}
	if scheme != "http" {
		return ""
	}
	if unknown := x.mayBeInternal(); tls == "EXTERNAL_ONLY" && unknown != "" {
		return UnknownPrefix + "require_tls is EXTERNAL_ONLY: " + unknown
	}
	return "require_tls is " + tls + ": Envoy redirects to https without calling the service"
}

// forwardedProto returns the value of x-forwarded-proto, which require_tls compares.
func (x *exchange) forwardedProto() (scheme, unknown string) {
	if x.Logged != nil && x.unloggedReason("x-forwarded-proto") != "" {
		return x.Scheme, x.unloggedReason(":scheme")
	}
	values, unknown := x.header("x-forwarded-proto")
	if unknown != "" {
		return "", "x-forwarded-proto: " + unknown
	}
	return strings.Join(values, ","), ""
}

// noCallReason returns why Envoy never calls the service on a route; empty if it may call it.
func (r *route) noCallReason() string {
	if r.action.Exists() || r.fragment {
		return ""
	}
	for _, name := range []string{"direct_response", "redirect"} {
		if r.node.Field(name).Exists() {
			return "the route is a " + name + ", for which Envoy never calls the service"
		}
	}
	return "the route has no cluster, so Envoy never calls the service"
}
