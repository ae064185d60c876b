package envoyconfig

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// findOtherFilters finds filters related to rate limits outside of connection managers.
func (c *Config) findOtherFilters() {
	known := map[*tree.Node]bool{}
	for m := range c.filterChains() {
		for _, f := range m.filters {
			known[f.config] = true
			if f.isDiscovered() {
				c.uncheckedFilters = append(c.uncheckedFilters, f.node)
			}
		}
	}
	for _, config := range c.extensions {
		_, inner := config.Typed()
		known[inner] = true
	}
	chain := &tree.Missing
	visit := func(n *tree.Node) {
		typeName, config := n.Typed()
		switch {
		case n.Field("filters").Kind == tree.List:
			chain = n
		case typeName == api.LocalRateLimit, strings.HasSuffix(typeName, "local_ratelimit.v3.LocalRateLimit"):
			c.localFilters = append(c.localFilters, n)
		case typeName == api.NetworkRateLimit:
			c.networkFilters = append(c.networkFilters, &filter{node: n, typeName: typeName, config: config, chain: chain})
		case (typeName == api.RateLimit || typeName == api.RateLimitQuota) && !known[config],
			slices.Contains(uncheckedTypes, typeName):
			c.uncheckedFilters = append(c.uncheckedFilters, n)
		}
	}
	for _, root := range c.roots {
		chain = &tree.Missing
		root.Walk(visit)
	}
}

// uncheckedTypes are filters that call a service but are not checked.
var uncheckedTypes = []string{
	"envoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimit",
}

// hasLocal reports whether a local rate limit filter uses the policies of a stage.
func (m *manager) hasLocal(stage uint64) bool {
	return slices.ContainsFunc(m.filters,
		func(f *filter) bool { return f.typeName == api.LocalRateLimit && f.stage() == stage })
}

// connectionForms returns the descriptors of a network filter, which are the same for all connections.
func (f *filter) connectionForms() iter.Seq2[*tree.Node, []descriptors.Form] {
	return func(yield func(*tree.Node, []descriptors.Form) bool) {
		for n := range f.config.Field("descriptors").Elements() {
			forms := tree.Map(n.Field("entries"), func(e *tree.Node) descriptors.Form {
				value := e.Field("value").Text
				return descriptors.Form{Key: e.Field("key").Text, Value: value, AnyValue: strings.Contains(value, "%")}
			})
			if !yield(n, forms) {
				return
			}
		}
	}
}

// checkNetworkFilter checks a network filter, which calls the service once per connection.
func (k *checker) checkNetworkFilter(f *filter) {
	domain := f.domain()
	if _, other := k.domains[domain]; !other {
		k.networkDomains[domain] = true
	}
	k.checkDomain(domain, f.config.Field("domain"))
	k.checkService(f)
	if why, never := k.config.runtime.disabled("ratelimit.tcp_filter_enabled"); never {
		k.report(NoEffect, rules.Error, f.node.Pos(), "%s, so the filter never calls the service", why)
	}
	for n, forms := range f.connectionForms() {
		k.sentDomains[domain] = true
		reach := k.reach(domain, forms)
		k.checkMaxWait(f, reach)
		for _, r := range reach.Rules {
			if names := leaseNames(r); len(names) > 0 {
				k.report(Leases, rules.Error, n.Pos(), "the lease of %s is never released, since a network filter makes no call at the end of a connection: use the rate limit filter for HTTP, or a limit without leases", r.Path())
			}
		}
		if f.chain.Exists() {
			key := fmt.Sprintf("%p %s %q %v", f.chain, f.service(), domain, forms)
			if first := k.connections[key]; first != nil {
				k.report(ChargedTwice, rules.Warning, n.Pos(), "each connection charges the counter of %s twice, since the descriptor at %v "+
					"is the same: remove one", formsText(forms), first.Pos())
			}
			k.connections[key] = cmp.Or(k.connections[key], n)
		}
		if reach.Reason != "" && slices.Contains(k.set.Domains(), domain) {
			k.report(Unmatched, rules.Error, n.Pos(),
				"no rule of domain %q can match %s: %s", rules.Shorten(domain), formsText(forms), reach.Reason)
		}
	}
}
