package envoygateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// envoyRoute is a route in Envoy's configuration: one match of one rule of a route, for one host,
// at one listener.
type envoyRoute struct {
	listener *listener
	route    *route
	// rule is the name of the rule in its route, and name the name that Envoy Gateway gives the
	// Envoy route.
	rule, name string
	// policy is the policy that set limits, or nil.
	policy *policy
	limits []*limit
}

func (o *Objects) envoyRoutes() (all []*envoyRoute) {
	slices.SortStableFunc(o.routes, func(a, b *route) int { return a.Metadata.compare(&b.Metadata) })
	for _, r := range o.routes {
		for _, l := range o.listenersOf(r) {
			for _, host := range l.hosts(r.Spec.Hostnames, o.gateway(l.gateway).Spec.Listeners) {
				all = append(all, r.envoyRoutes(l, host)...)
			}
		}
	}
	return all
}

// envoyRoutes returns the Envoy routes of a route for one host at one listener.
func (r *route) envoyRoutes(l *listener, host string) (all []*envoyRoute) {
	suffix := strings.ReplaceAll(host, ".", "_")
	addAt := func(rule, at string) {
		name := fmt.Sprintf("%s/%s/rule/%s/%s", strings.ToLower(r.Kind), r.Metadata.fullName(), at, suffix)
		all = append(all, &envoyRoute{listener: l, route: r, rule: rule, name: name})
	}
	add := func(rule string, number, match int) { addAt(rule, fmt.Sprintf("%d/match/%d", number, match)) }
	const none = -1 // Envoy Gateway's index if there are no matches
	// Kubernetes adds a match of all paths to each rule of an HTTPRoute without matches, and such a
	// rule to an HTTPRoute without rules.
	first := none
	if r.Kind == "HTTPRoute" {
		first = 0
	}
	if r.Spec.Rules == nil {
		if first == 0 {
			add("", 0, 0)
		}
		return all
	}
	for number, rule := range *r.Spec.Rules {
		switch {
		case rule.Matches == nil:
			add(rule.Name, number, first)
		case len(*rule.Matches) == 0:
			add(rule.Name, number, none)
		default:
			cors := slices.ContainsFunc(rule.Filters, func(f struct{ Type string }) bool { return f.Type == "CORS" })
			for match, m := range *rule.Matches {
				add(rule.Name, number, match)
				if method := m.Method.Value; cors && method != "" && method != "OPTIONS" {
					addAt(rule.Name, fmt.Sprintf("%d/match/%d/cors-preflight", number, match))
				}
			}
		}
	}
	return all
}

// listenersOf returns the listeners that a route references and that accept it.
func (o *Objects) listenersOf(r *route) (all []*listener) {
	space := r.Metadata.fullName().namespace
	for _, ref := range r.Spec.ParentRefs {
		if ref.Kind != "" && ref.Kind != "Gateway" {
			continue
		}
		g := o.gateway(name{cmp.Or(ref.Namespace, space), ref.Name})
		if g == nil {
			continue
		}
		for _, l := range g.Spec.Listeners {
			if (ref.SectionName == "" || ref.SectionName == l.Name) && (ref.Port == 0 || ref.Port == l.Port) &&
				o.accepts(l, r) && !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

func (o *Objects) gateway(n name) *gateway {
	for _, g := range o.gateways {
		if g.Metadata.fullName() == n {
			return g
		}
	}
	return nil
}

// accepts reports whether a listener accepts the kind and namespace of a route.
func (o *Objects) accepts(l *listener, r *route) bool {
	allowed := l.AllowedRoutes
	kind := len(l.AllowedRoutes.Kinds) == 0
	for _, k := range allowed.Kinds {
		kind = kind || k.Kind == r.Kind
	}
	space := r.Metadata.fullName().namespace
	switch from := allowed.Namespaces.From; {
	case !kind || l.Protocol != "HTTP" && l.Protocol != "HTTPS":
		return false
	case from == "All":
		return true
	case from == "Selector":
		labels, ok := o.namespaces[space]
		return ok && allowed.Namespaces.Selector.matches(labels)
	default:
		return space == l.gateway.namespace
	}
}

// hosts returns the hosts of a route that a listener serves. siblings are the listeners of its
// Gateway.
func (l *listener) hosts(wanted []string, siblings []*listener) []string {
	if len(wanted) == 0 {
		return []string{cmp.Or(l.Hostname, "*")}
	}
	served := map[string]bool{}
	for _, host := range wanted {
		switch {
		case l.Hostname == "" || l.Hostname == host || covers(l.Hostname, host):
			served[host] = true
		case covers(host, l.Hostname):
			served[l.Hostname] = true
		}
	}
	for _, other := range siblings {
		if other != l && other.Port == l.Port {
			delete(served, other.Hostname)
		}
	}
	return slices.Sorted(maps.Keys(served))
}

// covers reports whether a host with a wildcard includes another, which may have a wildcard, too.
func covers(wildcard, host string) bool {
	suffix, isWildcard := strings.CutPrefix(wildcard, "*")
	rest, ends := strings.CutSuffix(strings.TrimPrefix(host, "*"), suffix)
	return isWildcard && ends && (!strings.HasPrefix(host, "*") || strings.HasPrefix(rest, "."))
}
