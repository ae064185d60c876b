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
	findings, _ := c.Verify(set)
	return findings
}

// Verify compares the configuration with the rules. It returns the findings, sorted by file and line, and what each
// limit does.
func (c *Config) Verify(set *descriptors.Set) ([]Finding, *Statement) {
	k := &checker{
		config: c, set: set, reaches: map[string]*descriptors.Reach{}, needs: map[valueKey]*ruleNeeds{}, lists: map[checkedKey]*checkedList{}, ends: map[any]bool{}, managers: map[managerKey]bool{}, byRoute: map[*tree.Node][]*evaluation{}, connections: map[string]*tree.Node{}, pairs: map[[2]*checkedList][]string{}, rows: map[rowsKey][]*Row{}, charged: map[*descriptors.Reach]bool{}, waits: map[waitKey]bool{}, unlimited: map[unlimitedKey]*Row{}, leaseLists: map[string][]leasePolicy{},
		domains: map[string]rules.Pos{}, unknownDomains: map[string]bool{}, sentDomains: map[string]bool{}, fragmentDomains: map[string]bool{}, matched: map[*tree.Node]bool{},
		reachedRules: map[*descriptors.Rule]bool{}, tallies: map[*policyList]*tally{}, reported: map[findingKey]bool{}, networkDomains: map[string]bool{}, hasLeases: set.GrantsLeases(),
		quotaDomains: map[string]bool{}, buckets: map[*descriptors.Rule]*tree.Node{}, taken: map[*tree.Node]string{}, removed: map[*descriptors.Rule]string{}, calledFor: map[*descriptors.Rule]ruleCall{},
	}
	for _, pos := range c.placeholders {
		k.report(ChangeMe, rules.Error, pos,
			placeholder+" is a placeholder of a snippet: replace it by your own name, address or value")
	}
	k.checkAll()
	sortFindings(k.found)
	return mergeEqual(k.found), &k.statement
}

// checkAll runs all checks.
func (k *checker) checkAll() {
	c := k.config
	hasFilters := false
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
		k.reportUnsentRules()
		return
	}
	if c.fragments != nil {
		how := "checked one by one"
		if c.fragments.chain != nil {
			how = "merged as istiod merges them"
		}
		k.report(Unknown, rules.Note, c.fragments.node.Pos(), "these files are excerpts of a configuration, %s; to check the complete configuration, with clusters and routes from other sources, pass the output of the proxy's /config_dump", how)
	}
	k.reportFaultsOfRoutes()
	k.reportUnmatched()
	k.checkUnfilteredListeners()
	k.checkPerRouteNames()
	k.reportUnusedDomains()
	k.checkQuotaRules()
	k.reportUnsentRules()
	k.reportIneffectiveRules()
	k.reportRemoved()
	k.reportNeverSent()
	for _, d := range k.config.allowances.UnusedOf(acknowledgeable) {
		k.report(Allow, rules.Warning, d.Pos, "%s", d.Message)
	}
}

// checkManager checks the policies that the filters of a connection manager send on each route. It reports whether the
// manager has rate limit filters.
func (k *checker) checkManager(m *manager) bool {
	k.checkUsage(m)
	rateLimitFilters := m.rateLimitFilters()
	quotaFilters := m.quotaFilters()
	for _, f := range m.filters {
		if f.typeName == api.RateLimit && !slices.Contains(rateLimitFilters, f) ||
			f.typeName == api.RateLimitQuota && !slices.Contains(quotaFilters, f) {
			k.report(NoEffect, rules.Error, f.node.Pos(),
				"the filter is after the router, which ends the chain, so it never runs: put it before the router")
		}
	}
	for _, f := range quotaFilters {
		k.checkQuotaFilter(m, f)
	}
	for _, f := range rateLimitFilters {
		k.checkDomain(f.domain(), f.config.Field("domain"))
		k.fragmentDomains[f.domain()] = k.fragmentDomains[f.domain()] || m.fragments
		k.checkFilter(f)
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
	if !k.isFirst(m, "routes") {
		return true
	}
	answered := m.answeredBefore()
	for _, h := range m.table.hosts {
		if tree := h.node.Field("matcher"); tree.Exists() {
			for _, f := range rateLimitFilters {
				k.unknownDomains[f.domain()] = true
			}
			k.report(Unknown, rules.Note, tree.Pos(), "matcher trees of virtual hosts are not checked")
		}
		taken := newTakenPaths()
		for _, r := range h.routes {
			why := cmp.Or(m.unused, answered, m.neverTaken(r), taken.reason(r))
			for _, branch := range r.branchesOrSelf() {
				k.checkRoute(m, rateLimitFilters, h, branch, taken, why)
			}
			k.checkRouteHeaders(m, r)
			taken.add(r)
		}
	}
	for _, u := range m.upgrades {
		if u.own != nil && !u.own.hasLimits() && u.node.Field("enabled").Bool(true) {
			k.report(NoEffect, rules.Warning, u.node.Pos(), "requests for an upgrade to %s have filters of their own, without a rate limit filter, so a client that asks for the upgrade is not limited: add the filter", rules.Shorten(u.node.Field("upgrade_type").Text))
		}
	}
	return true
}

// managerKey identifies a check of the routes of all connection managers that treat them alike.
type managerKey struct {
	check, unused string
	table         *table
	settings      uint64
}

// isFirst reports whether no connection manager with the same table and the same settings had the same check: many
// listeners may share a table.
func (k *checker) isFirst(m *manager, check string) bool {
	key := managerKey{check: check, unused: m.unused, table: m.table}
	hasPolicies := func(f *filter) bool { return len(f.policies) > 0 }
	if len(m.upgrades) > 0 || m.fragments || slices.ContainsFunc(m.filters, hasPolicies) {
		return true
	}
	for n := range m.node.Fields() {
		switch tree.SnakeCase(n.Name) {
		case "stat_prefix", "access_log", "tracing", "route_config", "rds":
		default:
			key.settings = key.settings*31 + n.Hash()
		}
	}
	first := !k.managers[key]
	k.managers[key] = true
	return first
}

// checkRoute checks the lists that the filters send on a route, and counts those that they do not send. unreachable is
// the reason why no request reaches the route; empty if requests may reach it.
func (k *checker) checkRoute(
	m *manager, rateLimitFilters []*filter, h *virtualHost, r *route, taken *takenPaths, unreachable string,
) {
	notCalled := cmp.Or(unreachable, r.noCallReason())
	type result struct {
		list *policyList
		why  string
		// local is true if a local rate limit filter uses the list.
		local bool
	}
	var results []result // one for each list, whichever filter sends it
	var all []*checkedList
	takenBy := map[*checkedList][]string{}
	leases := map[string]*filter{}
	for _, f := range rateLimitFilters {
		lists, config := f.listsFor(m.table, h, r)
		domain, at := f.domainOf(config)
		k.checkDomain(domain, at)
		var sent []*checkedList
		for _, l := range lists {
			why := l.notSent
			switch {
			case notCalled != "":
				why = notCalled
			case why == "":
				checked := k.checkList(m, f, domain, l, h, r)
				sent = append(sent, checked)
				if whys := k.takenReasons(m, taken, r, checked); whys != nil {
					takenBy[checked] = whys
				}
			}
			i := slices.IndexFunc(results, func(o result) bool { return o.list == l.policyList })
			if i < 0 {
				results = append(results, result{l.policyList, why, why != "" && m.hasLocal(l.stage)})
			} else if why == "" {
				results[i].why = ""
			}
		}
		if !m.fragments {
			k.noteRemoved(sent)
		}
		k.checkEndCall(sent)
		if k.hasLeases {
			k.checkSharedLeases(f, k.checkLeasesOnce(m, f, domain, sent), leases)
		}
		all = append(all, sent...)
	}
	if at := r.action.Field("internal_redirect_policy"); at.Exists() && len(all) > 0 {
		k.report(ChargedTwice, rules.Note, at.Pos(), "a request that Envoy redirects internally charges its counters again")
	}
	k.stateRoute(m, h, r, all, takenBy, notCalled)
	for _, o := range results {
		if !o.local {
			k.countRoute(o.list, r, o.why)
			k.tallies[o.list].filterElsewhere = m.fragments && notCalled == ""
		}
	}
}

// checkedList is a list that a filter sends to a domain, with the rules that its policies reach.
type checkedList struct {
	listKey

	domain  string
	all     []*evaluation
	reached []*descriptors.Reach
	// byCounter are the charges by counter. charges are parallel to the policies; empty if a policy charges no counter
	// that others may charge.
	byCounter map[string]*charge
	charges   [][]*charge
	// free is true if a route sends all policies to requests that no earlier route takes.
	free     bool
	removals removals
}

// checkList checks a list that a filter sends on a route. Most checks are the same for all routes and run once.
func (k *checker) checkList(m *manager, f *filter, domain string, l sentList, h *virtualHost, r *route) *checkedList {
	evaluated := m.evaluateList(f, l.policyList, l.own, h, r)
	key := checkedKey{domain: domain, first: evaluated[0]}
	c := k.lists[key]
	if c == nil {
		c = &checkedList{
			listKey: listKey{limiter: f, list: l.policyList, own: l.own}, domain: domain, all: evaluated, byCounter: map[string]*charge{}, charges: make([][]*charge, len(evaluated)),
		}
		for i, e := range evaluated {
			c.reached = append(c.reached, k.checkSent(m, f, domain, e))
			k.countCharges(c, i)
		}
		k.checkOptional(c)
		c.removals = k.newRemovals(c)
		k.lists[key] = c
		k.sent = append(k.sent, c)
	}
	k.checkEnd(m, h, r, c)
	return c
}

// checkedKey identifies a checkedList by its first evaluation.
type checkedKey struct {
	domain string
	first  *evaluation
}

// checkEnd checks the policies that are sent at the end of a stream, once for all routes that do not change headers and
// do not configure filters.
func (k *checker) checkEnd(m *manager, h *virtualHost, r *route, c *checkedList) {
	type endKey struct {
		list *checkedList
		host *virtualHost
		node *tree.Node
	}
	key := endKey{list: c, host: h}
	if r.isSpecial() {
		key.node = r.node
		if r.entry != nil {
			key.node = r.entry
		}
	}
	if c.list.end == nil || k.ends[key] {
		return
	}
	k.ends[key] = true
	for _, e := range c.all {
		if e.streamDone {
			k.checkChangedHeaders(e.filterPolicy, m.table, h, r)
			k.checkStreamedCost(m, h, r, e.filterPolicy)
		}
	}
}

// isSpecial reports whether a route changes requests or configures filters.
func (r *route) isSpecial() bool {
	if r.entry != nil || r.node.Field("typed_per_filter_config").Exists() || r.node.At("match", "grpc").Exists() ||
		r.node.Field("request_headers_to_remove").Exists() || r.node.Field("request_headers_to_add").Exists() {
		return true
	}
	return slices.ContainsFunc(slices.Concat(hostRewrites, pathRewrites),
		func(name string) bool { return r.action.Field(name).Exists() })
}

// reportFaults reports the problems of a policy that reaches the given rules.
func (k *checker) reportFaults(e *evaluation, reach *descriptors.Reach) {
	for _, found := range e.faults {
		if found.code == ClientHits &&
			slices.ContainsFunc(reach.Rules, func(r *descriptors.Rule) bool { return len(leaseNames(r)) > 0 }) {
			continue // checkReleasedLease reports it
		}
		k.report(found.code, found.severity, found.at.Pos(), "%s", found.text)
	}
}

// reportFaultsOfRoutes reports the problems of policies that depend on routes. They are notes if some routes have none.
func (k *checker) reportFaultsOfRoutes() {
	for _, all := range k.byRoute {
		someSend := slices.ContainsFunc(all, func(e *evaluation) bool { return e.never == "" })
		for _, e := range all {
			if someSend && e.never != "" {
				for i := range e.faults {
					k.report(e.faults[i].code, rules.Note, e.faults[i].at.Pos(), "on some routes %s", e.faults[i].text)
				}
			} else {
				k.reportFaults(e, &descriptors.Reach{})
			}
		}
	}
}

// checkSent checks a policy that a filter sends.
func (k *checker) checkSent(m *manager, f *filter, domain string, e *evaluation) *descriptors.Reach {
	k.sentDomains[domain] = true
	reach := k.checkPolicy(domain, m, e)
	if slices.ContainsFunc(e.actions, (*action).readsRoute) {
		k.byRoute[e.node] = append(k.byRoute[e.node], e)
	} else {
		k.reportFaults(e, reach)
	}
	k.checkHits(e, reach)
	k.checkActions(m, e.filterPolicy)
	k.checkMaxWait(f, reach)
	k.checkRuleValues(e, reach)
	k.checkOverride(e, reach)
	return reach
}

// checkDomain checks that the domain of a filter has rules.
func (k *checker) checkDomain(name string, at *tree.Node) {
	if _, ok := k.domains[name]; ok {
		return
	}
	k.domains[name] = at.Pos()
	if names := k.set.Domains(); !slices.Contains(names, name) {
		k.report(Domain, rules.Error, at.Pos(),
			"there are no rules for the domain %q of this filter, so nothing is limited%s",
			rules.Shorten(name), rules.DidYouMean(name, names))
	}
}

// reportUnusedDomains reports the domains of the rules that no filter uses. If filters use some of the domains, the
// others may belong to other Envoys.
func (k *checker) reportUnusedDomains() {
	names := k.set.Domains()
	code := Domain
	severity := rules.Error
	effect := ", so its rules limit nothing"
	if slices.ContainsFunc(names, func(name string) bool { return k.domains[name] != (rules.Pos{}) }) {
		code = Unsent
		severity = rules.Warning
		effect = ", so its rules limit nothing here"
	}
	if k.config.fragments != nil && severity == rules.Warning ||
		!k.config.allListeners && k.config.listenerSource.Exists() || len(k.config.uncheckedFilters) > 0 {
		code = Unknown
		severity = rules.Note
		effect = " in these files"
	}
	for _, name := range names {
		if _, ok := k.domains[name]; ok {
			continue
		}
		pos := rules.Pos{}
		if all := domainRules(k.set, name); len(all) > 0 {
			pos = all[0].Pos()
		}
		k.report(code, severity, pos, "no filter uses the domain %q%s: set the domain of a rate limit filter",
			rules.Shorten(name), effect)
	}
}
