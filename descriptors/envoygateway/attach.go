package envoygateway

import "slices"

// attachment is a target, which has at most one policy.
type attachment struct {
	namespace string
	target
}

// attach sets the limits of routes from the policies that target them, most specific targets first:
// rules of routes, routes, listeners, Gateways. Policies are in the order of precedence.
func (o *Objects) attach(routes []*envoyRoute) {
	// Policies of Gateways and listeners, which those of routes may merge.
	above := map[attachment]*policy{}
	for _, p := range o.policies {
		for _, at := range o.targets(p) {
			if _, taken := above[at]; !taken && at.Kind == "Gateway" && o.hasTarget(at) {
				above[at] = p
			}
		}
	}
	taken := map[attachment]*policy{}
	for stage := range 4 {
		for _, p := range o.policies {
			for _, at := range o.targets(p) {
				if at.precedence() != stage || !o.mayAttach(p, at, taken) {
					continue
				}
				taken[at] = p
				applied := 0
				covered := 0
				for _, r := range routes {
					if !at.covers(r) {
						continue
					}
					if covered++; r.policy == nil {
						r.policy = p
						r.limits = p.limitsFor(r, above)
						applied++
					}
				}
				switch {
				case applied > 0 || p.limits == nil:
				case covered > 0:
					o.warn(p.Metadata.pos, "%s has no effect on %s: each of its routes has its own policy", p, at)
				case at.Kind == "Gateway":
					o.warn(p.Metadata.pos, "%s has no effect on %s: no given route is attached to it", p, at)
				default:
					o.warn(p.Metadata.pos, "%s has no effect on %s: no listener of the given Gateways accepts it; check its parentRefs "+
						"and hostnames, and allowedRoutes of the listeners", p, at)
				}
			}
		}
	}
}

func (p *policy) String() string { return "BackendTrafficPolicy " + p.Metadata.fullName().String() }

func (a attachment) String() string {
	s := a.Kind + " " + a.namespace + "/" + a.Name
	if a.SectionName != "" {
		s += " (" + a.SectionName + ")"
	}
	return s
}

// precedence orders kinds of targets; the lowest is the most specific.
func (a attachment) precedence() int {
	stage := 1
	if a.Kind == "Gateway" {
		stage = 3
	}
	if a.SectionName != "" {
		stage--
	}
	return stage
}

// covers reports whether a policy with this target applies to p.
func (a attachment) covers(p *envoyRoute) bool {
	if a.Kind == "Gateway" {
		return p.listener.gateway == name{a.namespace, a.Name} &&
			(a.SectionName == "" || a.SectionName == p.listener.Name)
	}
	return p.route.Kind == a.Kind && p.route.Metadata.fullName() == name{a.namespace, a.Name} &&
		(a.SectionName == "" || a.SectionName == p.rule)
}

// targets returns the targets of a policy, without duplicates.
func (o *Objects) targets(p *policy) (all []attachment) {
	space := p.Metadata.fullName().namespace
	add := func(t target) {
		if at := (attachment{space, t}); !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	if t := p.Spec.TargetRef; t != nil {
		add(*t)
	}
	for _, t := range p.Spec.TargetRefs {
		add(t)
	}
	for i := range p.Spec.TargetSelectors {
		s := &p.Spec.TargetSelectors[i]
		selected := func(kind string, m *metadata) {
			if kind == s.Kind && m.fullName().namespace == space && s.Selector.matches(m.Labels) {
				add(target{Kind: kind, Name: m.Name})
			}
		}
		for _, g := range o.gateways {
			selected("Gateway", &g.Metadata)
		}
		for _, r := range o.routes {
			selected(r.Kind, &r.Metadata)
		}
	}
	return all
}

// mayAttach reports whether a policy applies to a target. If not, it warns.
func (o *Objects) mayAttach(p *policy, at attachment, taken map[attachment]*policy) bool {
	switch has := o.hasTarget(at); {
	case has && taken[at] == nil:
		return true
	case p.limits == nil:
	case has:
		o.warn(p.Metadata.pos, "%s has no effect on %s: %s has precedence", p, at, taken[at])
	case at.Kind == "Gateway" || at.Kind == "HTTPRoute" || at.Kind == "GRPCRoute":
		o.warn(p.Metadata.pos,
			"%s targets %s, which is not among the given objects; add it, since rules are named after it", p, at)
	default:
		o.warn(p.Metadata.pos,
			"%s targets %s, which is not supported; sluice reads Gateways, HTTPRoutes and GRPCRoutes", p, at)
	}
	return false
}

func (o *Objects) hasTarget(at attachment) bool {
	full := name{at.namespace, at.Name}
	if at.Kind == "Gateway" {
		g := o.gateway(full)
		return g != nil && (at.SectionName == "" ||
			slices.ContainsFunc(g.Spec.Listeners, func(l *listener) bool { return l.Name == at.SectionName }))
	}
	for _, r := range o.routes {
		if r.Kind != at.Kind || r.Metadata.fullName() != full {
			continue
		}
		if at.SectionName == "" {
			return true
		}
		if r.Spec.Rules != nil {
			for _, rule := range *r.Spec.Rules {
				if rule.Name == at.SectionName {
					return true
				}
			}
		}
	}
	return false
}

// limitsFor returns the limits that a policy sets on a route. A merged policy includes those of the
// policy above it.
func (p *policy) limitsFor(at *envoyRoute, above map[attachment]*policy) []*limit {
	if p.Spec.MergeType == "" {
		return p.limits
	}
	l := at.listener
	parent := above[attachment{l.gateway.namespace, target{Kind: "Gateway", Name: l.gateway.name, SectionName: l.Name}}]
	if parent == nil {
		parent = above[attachment{l.gateway.namespace, target{Kind: "Gateway", Name: l.gateway.name}}]
	}
	switch {
	case parent == nil || parent.limits == nil || parent == p:
		return p.limits
	case p.limits == nil:
		return parent.limits
	case p.Spec.MergeType == "StrategicMerge":
		// Each limit has its own name, so none replaces another.
		return slices.Concat(p.limits, parent.limits)
	default:
		return p.limits
	}
}
