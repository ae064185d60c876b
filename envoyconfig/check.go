package envoyconfig

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Check returns what stands between the configuration and the rules, in the order of files
// and lines.
func (c *Config) Check(set *descriptors.Set) []Finding {
	k := &checker{
		config: c, set: set, seen: map[sent]*descriptors.Reach{}, domains: map[string]rules.Pos{}, dark: map[string]bool{}, lit: map[string]bool{}, partial: map[string]bool{}, matched: map[*tree.Node]bool{},
		reached: map[*descriptors.Rule]bool{}, tallies: map[*tree.Node]*tally{}, onceAt: map[repeatedKey]*repeated{}, reported: map[place]bool{}, routeDomains: map[*tree.Node]*tally{}, connected: map[string]bool{}, leasing: set.GivesLeases(),
		bucketed: map[string]bool{}, buckets: map[*descriptors.Rule]*tree.Node{}, asked: map[*descriptors.Rule]asking{},
	}
	for _, f := range c.judge.Newer {
		k.report(Unknown, rules.Note, f.Pos, "%s, unless it came with another release: the dump is of Envoy %v", f.Message, c.release)
	}
	for _, pos := range c.open {
		k.report(ChangeMe, rules.Error, pos, placeholder+" stands for what the rules do not say: put in the name, address or value that is yours")
	}
	k.all()
	k.flush()
	sortFindings(k.found)
	return k.found
}

// all looks at everything.
func (k *checker) all() {
	c := k.config
	limiting := false
	k.overridden()
	k.patches()
	for m := range c.chains() {
		limiting = k.manager(m) || limiting
	}
	for _, f := range c.connections {
		k.connection(f)
		limiting = true
	}
	if !limiting {
		k.unlimited()
		return
	}
	if c.fragments != nil {
		how := "looked at one by one"
		if c.fragments.chain != nil {
			how = "applied as istiod applies them"
		}
		k.report(Unknown, rules.Note, c.fragments.node.Pos(), "these are parts of a configuration, %s: what they become, with clusters and routes from elsewhere, is in the answer of /config_dump of the proxy", how)
	}
	k.unmatched()
	k.unfiltered()
	k.misnamed()
	k.uncalled()
	k.undivided()
	k.unsent()
	k.never()
	for _, d := range k.config.allowances.UnusedOf(acknowledgeable) {
		k.report(Allow, rules.Warning, d.Pos, "%s", d.Message)
	}
}

// manager looks at what the filters of a connection manager send on each route. It reports
// whether there are any.
func (k *checker) manager(m *manager) bool {
	limiting, quotas := m.limiting(), m.quotas()
	for _, f := range m.filters {
		if f.typeName == api.RateLimit && !slices.Contains(limiting, f) || f.typeName == api.RateLimitQuota && !slices.Contains(quotas, f) {
			k.report(NeverAsked, rules.Error, f.node.Pos(), "the filter stands behind the router, which ends the chain: put it before")
		}
	}
	for _, f := range quotas {
		k.quota(m, f)
	}
	for _, f := range limiting {
		k.domain(f.domain(), f.config.Field("domain"))
		k.partial[f.domain()] = k.partial[f.domain()] || m.fragments
		k.filter(f)
		k.requestType(m, f)
		if m.table == nil {
			k.dark[f.domain()] = true
			k.report(Unknown, rules.Note, m.node.Pos(), "the routes of %s are not in these files: give the answer of /config_dump%s", m.name(), m.wantedTable())
		}
	}
	if m.table == nil || len(limiting) == 0 {
		return len(limiting)+len(quotas) > 0
	}
	for _, h := range m.table.hosts {
		if tree := h.node.Field("matcher"); tree.There() {
			for _, f := range limiting {
				k.dark[f.domain()] = true
			}
			k.report(Unknown, rules.Note, tree.Pos(), "what a tree of matchers leads to is not looked at")
		}
		behind := ""
		for _, r := range h.routes {
			for _, branch := range r.ways() {
				k.route(m, limiting, h, branch, behind)
			}
			if behind == "" && !r.fragment && r.takesAll() {
				behind = "no request comes to the route, since that at " + r.node.Pos().String() + " takes all of them"
			}
		}
	}
	return true
}

// route looks at what filters send on a route, and counts what they do not.
// Behind says why no request comes to the route; empty if some may.
func (k *checker) route(m *manager, limiting []*filter, h *virtualHost, r *route, behind string) {
	uncalled := cmp.Or(behind, r.uncalled())
	type fate struct {
		at  *tree.Node
		why string
		// local says that a filter which asks no service makes use of it.
		local bool
	}
	var fates []fate // of each element, whichever filter sends it
	leases := map[string]*filter{}
	for _, f := range limiting {
		candidates, config := f.candidates(m.table, h, r)
		domain := f.domain()
		own := config.Field("domain")
		if own.Text != "" {
			domain = own.Text
			k.domain(domain, own)
		}
		var asked []candidate
		for _, p := range candidates {
			why := p.why
			switch {
			case uncalled != "":
				why = uncalled
			case why == "":
				k.sends(m, f, domain, p)
				k.changed(p, m.table, h, r)
				asked = append(asked, p)
			}
			i := slices.IndexFunc(fates, func(o fate) bool { return o.at == p.node })
			if i < 0 {
				fates = append(fates, fate{p.node, why, why != "" && m.hasLocal(p.policy)})
			} else if why == "" {
				fates[i].why = ""
			}
		}
		if own.Text != "" && !m.fragments {
			k.countDomain(own, r, len(asked) > 0, uncalled)
		}
		if k.leasing {
			k.sharedLeases(f, k.leases(f, domain, asked), leases)
		}
	}
	for _, o := range fates {
		if !o.local {
			k.count(o.at, r, o.why)
			k.tallies[o.at].staged = m.fragments && uncalled == ""
		}
	}
}

// sends looks at an element of rate_limits that a filter sends.
func (k *checker) sends(m *manager, f *filter, domain string, p candidate) {
	k.lit[domain] = true
	reach := k.seen[sent{domain, p.node}]
	if reach == nil {
		reach = k.policy(domain, m, p.policy)
		k.seen[sent{domain, p.node}] = reach
	}
	k.newer(p.node, newPolicyFields)
	k.hits(p, reach)
	k.actions(m, f, p)
	k.wait(f, reach)
}

// domain holds that a filter's domain has rules.
func (k *checker) domain(name string, at *tree.Node) {
	if _, ok := k.domains[name]; ok {
		return
	}
	k.domains[name] = at.Pos()
	if names := k.set.Domains(); !slices.Contains(names, name) {
		k.report(Domain, rules.Error, at.Pos(), "no rules are for the domain %q that this filter asks about, so that nothing is limited%s",
			rules.Shorten(name), rules.DidYouMean(rules.Nearest(name, names)))
	}
}

// uncalled holds that a filter asks about each domain of the rules. Where one asks about some, the others may be for
// other Envoys.
func (k *checker) uncalled() {
	names := k.set.Domains()
	code, severity, of := Domain, rules.Error, "so that its rules limit nothing"
	if slices.ContainsFunc(names, func(name string) bool { return k.domains[name] != (rules.Pos{}) }) {
		code, severity, of = Unsent, rules.Warning, "so that its rules limit nothing here"
	}
	if k.config.fragments != nil && severity == rules.Warning || !k.config.allListeners && k.config.fromElsewhere.There() || len(k.config.foreign) > 0 {
		code, severity, of = Unknown, rules.Note, "as far as these files say"
	}
	for _, name := range names {
		if _, ok := k.domains[name]; ok {
			continue
		}
		pos := rules.Pos{}
		for _, l := range k.set.Limits {
			if l.Rule.Domain() == name {
				pos = l.Rule.Pos()
				break
			}
		}
		k.report(code, severity, pos, "no filter asks about the domain %q, %s: set the domain of a rate limit filter", rules.Shorten(name), of)
	}
}
