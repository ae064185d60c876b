package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkUnfilteredListeners checks that all listeners with the same routes have a rate limit filter if one of them has,
// and that a listener whose routes have rate_limits has a rate limit filter.
func (k *checker) checkUnfilteredListeners() {
	limited := map[uint64]*manager{} // by the hash of the routes
	for _, m := range k.config.managers {
		if m.table != nil && len(m.rateLimitFilters()) > 0 && limited[m.table.hash] == nil {
			limited[m.table.hash] = m
		}
	}
	for _, m := range k.config.managers {
		if m.table == nil || m.fragments || m.hasLimits() || slices.ContainsFunc(m.filters,
			func(f *filter) bool { return f.typeName == api.RateLimit || !f.config.Exists() }) {
			continue
		}
		if o := limited[m.table.hash]; o != nil && len(m.table.hosts) > 0 {
			k.report(NoEffect, rules.Error, m.node.Pos(), "%s has no rate limit filter, but %s has one and the same routes: add the filter to http_filters, because requests to this listener are not limited",
				m.name(), o.name())
		}
		isLocal := func(f *filter) bool { return f.typeName == api.LocalRateLimit }
		if at := m.table.firstPolicies(); at.Exists() && !slices.ContainsFunc(m.filters, isLocal) {
			k.report(NoEffect, rules.Error, m.node.Pos(), "%s has no rate limit filter, so no filter sends the rate_limits of its routes, at %v: add one to http_filters", m.name(), at.Pos())
		}
	}
}

// firstPolicies returns the first rate_limits of the table, or missing.
func (t *table) firstPolicies() *tree.Node {
	for _, level := range t.levels() {
		if len(level.policies) > 0 {
			return level.policies[0].policies[0].node
		}
	}
	return &tree.Missing
}

// checkPerRouteNames checks that the keys of typed_per_filter_config are names of filters, because Envoy
// matches them by name only.
func (k *checker) checkPerRouteNames() {
	names := map[uint64][]string{} // by the hash of the routes: several listeners may share them
	for m := range k.config.filterChains() {
		for _, f := range m.rateLimitFilters() {
			if m.table != nil {
				names[m.table.hash] = append(names[m.table.hash], f.name)
			}
		}
	}
	checked := map[*table]bool{}
	for m := range k.config.filterChains() {
		if m.table == nil || len(m.rateLimitFilters()) == 0 {
			continue
		}
		all := names[m.table.hash]
		if checked[m.table] {
			continue
		}
		checked[m.table] = true
		for _, level := range m.table.levels() {
			for _, f := range level.perRoutes() {
				if !slices.Contains(all, f.Name) {
					slices.Sort(all)
					k.report(NoEffect, rules.Error,
						f.Pos(), "no rate limit filter has the name %q, so this configuration has no effect: "+
							"use the name of the filter in http_filters, here %s", rules.Shorten(f.Name),
						strings.Join(slices.Compact(all), ", "))
				}
			}
		}
	}
}
