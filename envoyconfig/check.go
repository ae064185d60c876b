package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Check returns what stands between the configuration and the rules, in the order of files
// and lines.
func (c *Config) Check(set *descriptors.Set) []Finding {
	k := &checker{
		config: c, set: set, seen: map[sent]*descriptors.Reach{}, asked: map[string]rules.Pos{}, dark: map[string]bool{}, asks: map[string]bool{},
		reached: map[*descriptors.Rule]bool{}, tallies: map[*node]*tally{}, said: map[said]bool{},
	}
	for _, pos := range c.open {
		k.report(ChangeMe, rules.Error, pos, placeholder+" stands for what the rules do not say: put in the name, address or value that is yours")
	}
	asking := false
	for _, m := range c.managers {
		asking = k.manager(m) || asking
	}
	if c.patched != nil {
		k.report(Unknown, rules.Note, c.patched.node.pos(), "these are parts of a configuration, looked at one by one: what they become, with clusters and routes from elsewhere, "+
			"is in the answer of /config_dump of the proxy")
	}
	if !asking && c.patched != nil {
		return k.found
	}
	if !asking {
		k.report(Domain, rules.Error, rules.Pos{}, "no listener has a rate limit filter before its router, so that Envoy never asks: add one to http_filters")
		return k.found
	}
	k.domains()
	k.unsent()
	k.never()
	for _, d := range k.config.allowances.UnusedOf(acknowledgeable) {
		k.report(Allow, rules.Warning, d.Pos, "%s", d.Message)
	}
	sortFindings(k.found)
	return k.found
}

type checker struct {
	config *Config
	set    *descriptors.Set
	found  []Finding
	// said are findings that are there already: many routes lead to the same one.
	said map[said]bool
	// seen are the descriptors that have been looked at: a virtual host's are sent by many
	// routes.
	seen map[sent]*descriptors.Reach
	// asked are the domains of filters, with the place of the first. For those in dark it is
	// not known what is sent, and for those in asks something is.
	asked      map[string]rules.Pos
	dark, asks map[string]bool
	// reached are the rules that something sent can match.
	reached map[*descriptors.Rule]bool
	tallies map[*node]*tally
}

// sent is an element of rate_limits, sent to a domain.
type sent struct {
	domain string
	at     *node
}

type said struct {
	code Code
	pos  rules.Pos
}

func (k *checker) report(code Code, severity rules.Severity, pos rules.Pos, format string, args ...any) {
	if s := (said{code, pos}); !k.said[s] {
		k.said[s] = pos != rules.Pos{}
		if severity == rules.Warning && (k.config.allowances.Allow(rules.Code(code), pos) || k.set.Allows(rules.Code(code), pos)) {
			return
		}
		k.found = append(k.found, Finding{code, severity, pos, fmt.Sprintf(format, args...)})
	}
}

// manager looks at what the filters of a connection manager send on each route. It reports
// whether there are any.
func (k *checker) manager(m *manager) bool {
	asking := m.asking()
	for _, f := range m.filters {
		if f.typeName == rateLimitFilter && !slices.Contains(asking, f) {
			k.report(NeverAsked, rules.Error, f.node.pos(), "the filter stands behind the router, which ends the chain: put it before")
		}
	}
	for _, f := range asking {
		k.domain(f.domain(), f.config.field("domain"))
		k.filter(f)
		if m.table == nil {
			k.dark[f.domain()] = true
			k.report(Unknown, rules.Note, m.node.pos(), "the routes of %s are not in these files: give the answer of /config_dump, or the RouteConfiguration %q too",
				m.name(), m.node.at("rds", "route_config_name").str())
		}
	}
	if m.table == nil || len(asking) == 0 {
		return len(asking) > 0
	}
	for _, h := range m.table.hosts {
		if tree := h.node.field("matcher"); tree.there() {
			for _, f := range asking {
				k.dark[f.domain()] = true
			}
			k.report(Unknown, rules.Note, tree.pos(), "what a tree of matchers leads to is not looked at")
		}
		for _, r := range h.routes {
			k.route(m, asking, h, r)
		}
	}
	return true
}

// route looks at what filters send on a route, and counts what they do not.
func (k *checker) route(m *manager, asking []*filter, h *virtualHost, r *route) {
	unasked := r.unasked(h, "https")
	type fate struct {
		at  *node
		why string
	}
	var fates []fate // of each element, whichever filter sends it
	for _, f := range asking {
		candidates, config := f.candidates(m.table, h, r)
		domain := f.domain()
		if own := config.field("domain"); own.str() != "" {
			domain = own.str()
			k.domain(domain, own)
		}
		for _, p := range candidates {
			why := p.why
			switch {
			case unasked != "":
				why = unasked
			case why == "":
				k.sends(m, f, domain, p)
			}
			i := slices.IndexFunc(fates, func(o fate) bool { return o.at == p.node })
			if i < 0 {
				fates = append(fates, fate{p.node, why})
			} else if why == "" {
				fates[i].why = ""
			}
		}
	}
	for _, o := range fates {
		k.count(o.at, r, o.why)
	}
}

// sends looks at an element of rate_limits that a filter sends.
func (k *checker) sends(m *manager, f *filter, domain string, p candidate) {
	k.asks[domain] = true
	reach := k.seen[sent{domain, p.node}]
	if reach == nil {
		reach = k.policy(domain, p.policy)
		k.seen[sent{domain, p.node}] = reach
	}
	k.newer(p.node, newPolicyFields)
	k.hits(p, reach)
	k.actions(m, p)
	k.wait(f, reach)
}

// domain holds that a filter's domain has rules.
func (k *checker) domain(name string, at *node) {
	if _, ok := k.asked[name]; ok {
		return
	}
	k.asked[name] = at.pos()
	if names := k.set.Domains(); !slices.Contains(names, name) {
		k.report(Domain, rules.Error, at.pos(), "no rules are for the domain %q that this filter asks about, so that nothing is limited%s",
			rules.Shorten(name), rules.DidYouMean(rules.Nearest(name, names)))
	}
}

// domains holds that a filter asks about each domain of the rules.
func (k *checker) domains() {
	for _, name := range k.set.Domains() {
		if _, ok := k.asked[name]; ok {
			continue
		}
		pos := rules.Pos{}
		for _, l := range k.set.Limits {
			if l.Rule.Domain() == name {
				pos = l.Rule.Pos()
				break
			}
		}
		k.report(Domain, rules.Error, pos, "no filter asks about the domain %q, so that its rules limit nothing: set the domain of a rate limit filter", rules.Shorten(name))
	}
}
