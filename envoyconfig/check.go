package envoyconfig

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Check compares the configuration with the rules and returns the findings, sorted by file and line.
func (c *Config) Check(set *descriptors.Set) []Finding {
	k := &checker{
		config: c, set: set, reachOf: map[sentPolicy]*descriptors.Reach{}, domains: map[string]rules.Pos{}, unknownDomains: map[string]bool{}, sentDomains: map[string]bool{}, fragmentDomains: map[string]bool{}, matched: map[*tree.Node]bool{},
		reachedRules: map[*descriptors.Rule]bool{}, tallies: map[*tree.Node]*tally{}, perFileByKey: map[perFileKey]*perFileFinding{}, reported: map[findingKey]bool{}, routeDomains: map[*tree.Node]*tally{}, networkDomains: map[string]bool{}, hasLeases: set.GrantsLeases(),
		quotaDomains: map[string]bool{}, buckets: map[*descriptors.Rule]*tree.Node{}, calledFor: map[*descriptors.Rule]ruleCall{},
	}
	for _, f := range c.validator.Unknown {
		k.report(Unknown, rules.Note, f.Pos, "%s, unless Envoy %v has it, which wrote the dump", f.Message, c.release)
	}
	for _, pos := range c.placeholders {
		k.report(ChangeMe, rules.Error, pos, placeholder+" is a placeholder of a snippet: replace it by your own name, address or value")
	}
	k.checkAll()
	k.addPerFile()
	sortFindings(k.found)
	return k.found
}

// checkAll runs all checks.
func (k *checker) checkAll() {
	c := k.config
	hasFilters := false
	k.checkQuotaOverrides()
	k.checkPatches()
	for m := range c.filterChains() {
		hasFilters = k.checkManager(m) || hasFilters
	}
	for _, f := range c.networkFilters {
		k.checkNetworkFilter(f)
		hasFilters = true
	}
	if !hasFilters {
		k.reportNoFilter()
		return
	}
	if c.fragments != nil {
		how := "checked one by one"
		if c.fragments.chain != nil {
			how = "merged as istiod merges them"
		}
		k.report(Unknown, rules.Note, c.fragments.node.Pos(), "these files are excerpts of a configuration, %s; to check the complete configuration, with clusters and routes from other sources, pass the output of the proxy's /config_dump", how)
	}
	k.reportUnmatched()
	k.checkUnfilteredListeners()
	k.checkPerRouteNames()
	k.reportUnusedDomains()
	k.checkQuotaRules()
	k.reportUnsentRules()
	k.reportNeverSent()
	for _, d := range k.config.allowances.UnusedOf(acknowledgeable) {
		k.report(Allow, rules.Warning, d.Pos, "%s", d.Message)
	}
}

// checkManager checks the policies that the filters of a connection manager send on each route. It reports whether the
// manager has rate limit filters.
func (k *checker) checkManager(m *manager) bool {
	rateLimitFilters, quotaFilters := m.rateLimitFilters(), m.quotaFilters()
	for _, f := range m.filters {
		if f.typeName == api.RateLimit && !slices.Contains(rateLimitFilters, f) || f.typeName == api.RateLimitQuota && !slices.Contains(quotaFilters, f) {
			k.report(NoEffect, rules.Error, f.node.Pos(), "the filter is after the router, which ends the chain, so it never runs: put it before the router")
		}
	}
	for _, f := range quotaFilters {
		k.checkQuotaFilter(m, f)
	}
	for _, f := range rateLimitFilters {
		k.checkDomain(f.domain(), f.config.Field("domain"))
		k.fragmentDomains[f.domain()] = k.fragmentDomains[f.domain()] || m.fragments
		k.checkFilter(f)
		k.checkDenials(m, f)
		k.checkLimitHeaders(f)
		k.checkSoft(m, f)
		k.checkRequestType(m, f)
		if m.table == nil {
			k.unknownDomains[f.domain()] = true
			k.report(Unknown, rules.Note, m.node.Pos(), "the routes of %s are not in these files: pass the output of /config_dump%s", m.name(), m.wantedTable())
		}
	}
	if m.table == nil || len(rateLimitFilters) == 0 {
		return len(rateLimitFilters)+len(quotaFilters) > 0
	}
	for _, h := range m.table.hosts {
		if tree := h.node.Field("matcher"); tree.Exists() {
			for _, f := range rateLimitFilters {
				k.unknownDomains[f.domain()] = true
			}
			k.report(Unknown, rules.Note, tree.Pos(), "matcher trees of virtual hosts are not checked")
		}
		unreachable := ""
		for _, r := range h.routes {
			for _, branch := range r.branchesOrSelf() {
				k.checkRoute(m, rateLimitFilters, h, branch, unreachable)
			}
			if unreachable == "" && !r.fragment && r.matchesAll() {
				unreachable = "no request reaches the route, because the route at " + r.node.Pos().String() + " matches every request"
			}
		}
	}
	return true
}

// checkRoute checks the policies that the filters send on a route, and counts those that they do not send. unreachable
// is the reason why no request reaches the route; empty if requests may reach it.
func (k *checker) checkRoute(m *manager, rateLimitFilters []*filter, h *virtualHost, r *route, unreachable string) {
	notCalled := cmp.Or(unreachable, r.noCallReason())
	type result struct {
		at  *tree.Node
		why string
		// local is true if a local rate limit filter uses the policy.
		local bool
	}
	var results []result // one for each policy, whichever filter sends it
	leases := map[string]*filter{}
	for _, f := range rateLimitFilters {
		policies, config := f.policiesFor(m.table, h, r)
		domain := f.domain()
		own := config.Field("domain")
		if own.Text != "" {
			domain = own.Text
			k.checkDomain(domain, own)
		}
		var sent []filterPolicy
		for _, p := range policies {
			why := p.notSent
			switch {
			case notCalled != "":
				why = notCalled
			case why == "":
				k.checkSent(m, f, domain, p)
				k.checkChangedHeaders(p, m.table, h, r)
				k.checkStreamedCost(m, h, r, p)
				sent = append(sent, p)
			}
			i := slices.IndexFunc(results, func(o result) bool { return o.at == p.node })
			if i < 0 {
				results = append(results, result{p.node, why, why != "" && m.hasLocal(p.policy)})
			} else if why == "" {
				results[i].why = ""
			}
		}
		if own.Text != "" && !m.fragments {
			k.countDomain(own, r, len(sent) > 0, notCalled)
		}
		k.checkEndCall(m, sent)
		if k.hasLeases {
			k.checkSharedLeases(f, k.checkLeases(m, f, domain, sent), leases)
		}
	}
	for _, o := range results {
		if !o.local {
			k.countRoute(o.at, r, o.why)
			k.tallies[o.at].filterElsewhere = m.fragments && notCalled == ""
		}
	}
}

// checkSent checks a policy that a filter sends.
func (k *checker) checkSent(m *manager, f *filter, domain string, p filterPolicy) {
	k.sentDomains[domain] = true
	reach := k.reachOf[sentPolicy{domain, p.node}]
	if reach == nil {
		reach = k.checkPolicy(domain, m, p.policy)
		k.reachOf[sentPolicy{domain, p.node}] = reach
	}
	k.checkNewFields(p.node, newPolicyFields)
	k.checkHits(p, reach)
	k.checkActions(m, f, p)
	k.checkMaxWait(f, reach)
}

// checkDomain checks that the domain of a filter has rules.
func (k *checker) checkDomain(name string, at *tree.Node) {
	if _, ok := k.domains[name]; ok {
		return
	}
	k.domains[name] = at.Pos()
	if names := k.set.Domains(); !slices.Contains(names, name) {
		k.report(Domain, rules.Error, at.Pos(), "there are no rules for the domain %q of this filter, so nothing is limited%s",
			rules.Shorten(name), rules.DidYouMean(rules.Nearest(name, names)))
	}
}

// reportUnusedDomains reports the domains of the rules that no filter uses. If filters use some of the domains, the
// others may belong to other Envoys.
func (k *checker) reportUnusedDomains() {
	names := k.set.Domains()
	code, severity, effect := Domain, rules.Error, ", so its rules limit nothing"
	if slices.ContainsFunc(names, func(name string) bool { return k.domains[name] != (rules.Pos{}) }) {
		code, severity, effect = Unsent, rules.Warning, ", so its rules limit nothing here"
	}
	if k.config.fragments != nil && severity == rules.Warning || !k.config.allListeners && k.config.listenerSource.Exists() || len(k.config.uncheckedFilters) > 0 {
		code, severity, effect = Unknown, rules.Note, " in these files"
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
		k.report(code, severity, pos, "no filter uses the domain %q%s: set the domain of a rate limit filter", rules.Shorten(name), effect)
	}
}
