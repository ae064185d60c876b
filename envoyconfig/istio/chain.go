package istio

import (
	"cmp"
	"slices"
)

// Chain is the list of patches that a connection manager of a proxy gets, including those of the proxy's clusters, in
// the order in which istiod applies patches of the same kind.
type Chain []*Patch

// Chains returns the distinct chains that result from the EnvoyFilters, by scope and context. Two EnvoyFilters with
// different labels may select the same proxies or different ones: they share a chain only if one of their
// patches has no complement in another chain.
func Chains(all []*EnvoyFilter) (chains []Chain) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *EnvoyFilter) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.rank, b.rank))
	})
	var patches []*Patch
	for _, f := range all {
		patches = append(patches, f.Patches...)
	}
	seen := map[string]bool{}
	hasComplement := map[*Patch]bool{}
	addChains := func(s scope) {
		if seen[s.key()] {
			return
		}
		seen[s.key()] = true
		for _, chain := range chainsOf(all, s) {
			chains = append(chains, chain)
			complete := chain.IsComplete()
			for _, p := range chain {
				hasComplement[p] = hasComplement[p] || complete
			}
		}
	}
	for _, f := range all {
		addChains(f.scope)
	}
	for _, p := range patches {
		for _, other := range patches {
			if p.Complements(other) && !hasComplement[p] && p.MayShareListener(other) {
				addChains(p.parent.scope.intersect(other.parent.scope))
			}
		}
	}
	return chains
}

// chainsOf returns a chain for each context of the patches for the proxies of a scope.
func chainsOf(all []*EnvoyFilter, s scope) (chains []Chain) {
	var patches []*Patch
	var named []string
	for _, f := range all {
		if !f.scope.covers(s) {
			continue
		}
		patches = append(patches, f.Patches...)
		for _, p := range f.Patches {
			if p.changesChain() && p.Context != anyContext && !slices.Contains(named, p.Context) {
				named = append(named, p.Context)
			}
		}
	}
	if !slices.ContainsFunc(patches, (*Patch).changesChain) {
		return nil
	}
	if len(named) == 0 {
		named = []string{anyContext}
	}
	for _, context := range named {
		chains = append(chains,
			slices.DeleteFunc(slices.Clone(patches), func(p *Patch) bool { return !p.appliesTo(context) }))
	}
	return chains
}

// changesChain reports whether the patch changes filters or routes of a connection manager.
func (p *Patch) changesChain() bool {
	return slices.Contains([]string{HTTPFilter, RouteConfiguration, VirtualHost, HTTPRoute}, p.ApplyTo)
}

// appliesTo reports whether the listeners of a context get the patch or, for a patch of clusters, their proxies.
func (p *Patch) appliesTo(context string) bool {
	sidecar := func(c string) bool { return c == inbound || c == outbound }
	return p.Context == context || p.Context == anyContext ||
		p.ApplyTo == Cluster && (context == anyContext || sidecar(p.Context) && sidecar(context))
}

// IsComplete reports whether the chain has both a rate limit filter and rate_limits.
func (c Chain) IsComplete() bool {
	return slices.ContainsFunc(c, func(p *Patch) bool { return p.AddsFilter }) &&
		slices.ContainsFunc(c, func(p *Patch) bool { return p.AddsPolicies })
}

// Contains reports whether the chain contains the patch.
func (c Chain) Contains(p *Patch) bool { return slices.Contains(c, p) }
