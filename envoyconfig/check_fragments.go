package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// reportNoFilter reports why there is no filter to check. It is an error only if the files are complete.
func (k *checker) reportNoFilter() {
	c := k.config
	switch {
	case len(c.uncheckedFilters) > 0:
		k.report(Unknown, rules.Note, c.uncheckedFilters[0].Pos(), "this is the only rate limit filter, and it is not checked: only filters in http_filters of a connection manager are, and those of config_discovery whose resource, or the output of /config_dump, is passed, too")
	case len(c.localFilters) > 0:
		k.report(Unknown, rules.Note, c.localFilters[0].Pos(),
			"all rate limit filters are local and do not call a service")
	case c.fragments != nil:
		k.checkWithoutFilter()
	case !c.allListeners && (len(c.managers) == 0 || c.listenerSource.Exists()):
		at := c.listenerSource
		if !at.Exists() {
			at = c.roots[0]
		}
		k.report(Unknown, rules.Note, at.Pos(), "no listener in these files has a rate limit filter, but the files do not contain all listeners: pass the output of /config_dump")
	default:
		k.report(Domain, rules.Error, rules.Pos{}, "no listener has a rate limit filter before its router, so Envoy never calls the service: add one to http_filters")
	}
}

// checkWithoutFilter checks policies whose filter is not in the files, as if each domain of the rules had a
// filter.
func (k *checker) checkWithoutFilter() {
	sent := false
	check := func(m *manager, domains []string, lists []*policyList) {
		for _, l := range lists {
			sent = true
			for _, p := range l.policies {
				k.checkPolicyWithoutFilter(m, domains, p)
			}
		}
	}
	for _, m := range k.config.managers {
		if !m.fragments {
			continue
		}
		if slices.ContainsFunc(m.filters, func(f *filter) bool { return f.typeName == api.RateLimit }) {
			return // the filter is after the router, which is already reported
		}
		for _, level := range m.table.levels() {
			for _, config := range level.perRoutes() {
				domains := k.set.Domains()
				if at := config.Field("domain"); at.Text != "" {
					k.checkDomain(at.Text, at)
					domains = []string{at.Text}
				}
				check(m, domains, newPolicies(config.Field("rate_limits")))
			}
			check(m, k.set.Domains(), level.policies)
		}
	}
	pos := k.config.fragments.node.Pos()
	if sent {
		k.report(Unknown, rules.Note, pos, "no file contains the filter that sends these rate_limits, so its domain and stage are unknown: also pass its listener, or the output of /config_dump")
	} else {
		k.report(Unknown, rules.Note, pos, "these files contain neither a rate limit filter nor rate_limits")
	}
}

// checkPolicyWithoutFilter checks that a rule of one of the domains can match the policy.
func (k *checker) checkPolicyWithoutFilter(m *manager, domains []string, p *policy) {
	e := m.evaluate(nil, filterPolicy{p, true}, nil, &route{node: &tree.Missing, fragment: true})
	k.reportFaults(e, &descriptors.Reach{})
	k.checkActions(m, e.filterPolicy)
	forms, known := e.forms()
	if !known || p.node.Field("limit").Exists() || len(domains) == 0 ||
		len(domains) == 1 && !slices.Contains(k.set.Domains(), domains[0]) {
		return
	}
	reason := ""
	for _, domain := range domains {
		reach := k.reach(domain, forms)
		if reach.Reason == "" {
			return
		}
		reason = cmp.Or(reason, reach.Reason)
	}
	domainText := "any domain"
	if len(domains) == 1 {
		domainText = fmt.Sprintf("domain %q", rules.Shorten(domains[0]))
	}
	k.report(Unmatched, rules.Warning, p.node.Pos(), "no rule of %s can match %s: %s%s", domainText, formsText(forms),
		reason, k.hint(domains[0], p, forms))
}
