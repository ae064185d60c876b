package istio

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Chain is the patches that one connection manager of a proxy gets, and the clusters of the proxy.
type Chain struct {
	Context string
	// Patches are in the order in which istiod applies those of a kind.
	Patches []*Patch

	scope scope
}

// Chains returns the chains that the EnvoyFilters tell apart, by their scopes and contexts. Two
// EnvoyFilters with labels that do not contain each other may be for the same proxies, or for others:
// they share a chain only if together makes one of them useful.
func Chains(all []*EnvoyFilter, together func(p, other *Patch) bool) []*Chain {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *EnvoyFilter) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(b.rootness(), a.rootness()))
	})
	var chains []*Chain
	seen := map[string]bool{}
	addScope := func(s scope) {
		if !seen[s.key()] {
			seen[s.key()] = true
			chains = append(chains, chainsOf(all, s)...)
		}
	}
	for _, f := range all {
		addScope(f.scope)
	}
	for _, s := range unions(all, chains, together) {
		addScope(s)
	}
	return chains
}

// unions returns the scopes of two EnvoyFilters that share no chain, may be for the same proxies, and
// have patches that make each other useful.
func unions(all []*EnvoyFilter, chains []*Chain, together func(p, other *Patch) bool) (found []scope) {
	for _, f := range all {
		for _, p := range f.Patches {
			if slices.ContainsFunc(chains, func(c *Chain) bool {
				return c.Has(p) && slices.ContainsFunc(c.Patches, func(o *Patch) bool { return together(p, o) })
			}) {
				continue
			}
			for _, other := range all {
				if slices.ContainsFunc(other.Patches, func(o *Patch) bool { return together(p, o) && p.Meets(o) }) {
					found = append(found, f.scope.and(other.scope))
				}
			}
		}
	}
	return found
}

// chainsOf returns a chain for each context of the patches that the proxies of a scope get.
func chainsOf(all []*EnvoyFilter, s scope) (chains []*Chain) {
	var named, variants []string
	for _, f := range all {
		for _, p := range f.Patches {
			if !f.scope.covers(s) || !p.shapesChain() {
				continue
			}
			if p.Context != anyContext && !slices.Contains(named, p.Context) {
				named = append(named, p.Context)
			}
			if v := p.variant(); v != "" && !slices.Contains(variants, v) {
				variants = append(variants, v)
			}
		}
	}
	if len(named) == 0 {
		named = []string{anyContext}
	}
	if len(variants) == 0 {
		variants = []string{""}
	}
	for _, context := range named {
		for _, variant := range variants {
			c := &Chain{Context: context, scope: s}
			for _, f := range all {
				for _, p := range f.Patches {
					if f.scope.covers(s) && p.reaches(context, variant) {
						c.Patches = append(c.Patches, p)
					}
				}
			}
			if slices.ContainsFunc(c.Patches, (*Patch).shapesChain) {
				chains = append(chains, c)
			}
		}
	}
	return chains
}

// shapesChain reports whether the patch changes filters or routes of a connection manager.
func (p *Patch) shapesChain() bool {
	return slices.Contains([]string{HTTPFilter, RouteConfiguration, VirtualHost, HTTPRoute}, p.ApplyTo)
}

// variant returns the conditions of a patch that another patch may exclude: the version of the proxy and the
// route configuration.
func (p *Patch) variant() string {
	var v strings.Builder
	for _, at := range []*tree.Node{
		p.match.At("proxy", "proxy_version"), p.match.At("route_configuration", "name"),
		p.match.At("route_configuration", "port_number"), p.match.At("route_configuration", "gateway"),
	} {
		if at.Text != "" {
			v.WriteString(at.Name + " " + at.Text + "\n")
		}
	}
	return v.String()
}

// reaches reports whether the patch is for a context and a variant.
func (p *Patch) reaches(context, variant string) bool {
	if p.ApplyTo == Cluster { // clusters are the proxy's, and not a listener's
		sidecar := func(c string) bool { return c == inbound || c == outbound }
		return p.Context == context || p.Context == anyContext || context == anyContext || sidecar(p.Context) && sidecar(context)
	}
	v := p.variant()
	return (p.Context == context || p.Context == anyContext) && (v == "" || v == variant)
}

// order is the priority of an EnvoyFilter.
func (f *EnvoyFilter) order() int64 {
	n, _ := strconv.ParseInt(f.priority, 10, 64) // 0 without one
	return n
}

// rootness sorts those of the root namespace before the others of the same priority.
func (f *EnvoyFilter) rootness() int {
	if f.scope.namespace == rootNamespace {
		return 1
	}
	return 0
}

// Has reports whether the chain's proxies get the patch.
func (c *Chain) Has(p *Patch) bool { return slices.Contains(c.Patches, p) }
