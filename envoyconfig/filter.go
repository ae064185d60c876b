package envoyconfig

import (
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// filter is an HTTP filter or a network rate limit filter.
type filter struct {
	node *tree.Node
	// name is the key of the filter in typed_per_filter_config.
	name, typeName string
	// disabled is true if the filter runs only on routes that enable it.
	disabled bool
	// config is the typed_config.
	config *tree.Node
	// policies are the rate limit filter's own rate_limits.
	policies []*policyList
	// routePolicies are the rate_limits of the per-route configurations, by their nodes.
	routePolicies sync.Map
	// matcher selects requests that skip the filter; nil if there is none.
	matcher *tree.Node
	// chain is the filter chain of a network filter, or missing.
	chain *tree.Node
	// perRouteStrings are the strings in the per-route configurations of a filter that may use them as metadata
	// namespaces.
	perRouteStrings map[string]bool
}

func newFilter(n *tree.Node) *filter {
	f := &filter{node: n, name: n.Field("name").Text, disabled: n.Field("disabled").Bool(false)}
	f.configure(n.Field("typed_config"))
	return f
}

func (f *filter) configure(typedConfig *tree.Node) {
	f.typeName, f.config = typedConfig.Typed()
	if inner := f.config.At("extension_config", "typed_config"); f.typeName == withMatcher &&
		inner.TypeName() == api.RateLimit {
		f.matcher = f.config.Field("xds_matcher")
		f.typeName, f.config = inner.Typed()
	}
	if f.typeName == api.RateLimit {
		f.policies = newPolicies(f.config.Field("rate_limits"))
	}
}

func (f *filter) domain() string { return f.config.Field("domain").Text }

// domainOf returns the domain of a route with the given configuration of the filter, and its position.
func (f *filter) domainOf(config *tree.Node) (name string, at *tree.Node) {
	if at = config.Field("domain"); at.Text == "" {
		at = f.config.Field("domain")
	}
	return at.Text, at
}

func (f *filter) stage() uint64 { return f.config.Field("stage").Uint(0) }

// isDiscovered reports whether this is a rate limit filter whose configuration comes by ECDS and is not in the
// files.
func (f *filter) isDiscovered() bool {
	for n := range f.node.At("config_discovery", "type_urls").Elements() {
		if f.typeName == "" && strings.HasSuffix(n.Text, "/"+api.RateLimit) {
			return true
		}
	}
	return false
}

// configLevels returns the nodes that can have per-route configuration of a filter, the most specific first.
func configLevels(t *table, h *virtualHost, r *route) []*tree.Node {
	if r.entry != nil {
		return []*tree.Node{r.entry, r.node, h.node, t.node}
	}
	return []*tree.Node{r.node, h.node, t.node}
}

// perRoute returns the filter's configuration for a route, and whether the filter is disabled there. The most
// specific level wins.
func (f *filter) perRoute(t *table, h *virtualHost, r *route) (config *tree.Node, disabled bool) {
	config = &tree.Missing
	disabled = f.disabled
	decided := false
	for _, level := range configLevels(t, h, r) {
		typeName, n := level.Field("typed_per_filter_config").Value(f.name).Typed()
		if typeName == api.FilterConfig {
			if !decided && (n.Field("disabled").Bool(false) || n.Field("config").Exists()) {
				decided = true
				disabled = n.Field("disabled").Bool(false)
			}
			typeName, n = n.Field("config").Typed()
		} else if n.Exists() && !decided {
			decided = true
			disabled = false
		}
		if typeName == api.RateLimitPerRoute {
			return n, disabled
		}
	}
	return config, disabled
}

// filterPolicy is a policy that a filter may send on a route.
type filterPolicy struct {
	*policy
	// own is true for a policy of the filter or of its per-route configuration. Envoy sends hits for these only.
	own bool
}

// sentList is a list of policies that a filter may send on a route.
type sentList struct {
	*policyList
	own bool
	// notSent is the reason why the filter does not send the list here; empty if it does.
	notSent string
}

// hiddenByRoute is the reason why, by default, Envoy does not send the rate_limits of a virtual host for a route.
const hiddenByRoute = "the route has its own rate_limits; with vh_rate_limits: INCLUDE it sends these, too"

// policiesOf returns the rate_limits of a per-route configuration.
func (f *filter) policiesOf(config *tree.Node) []*policyList {
	n := config.Field("rate_limits")
	found, ok := f.routePolicies.Load(n)
	if !ok && len(n.Nodes) > 0 {
		found, _ = f.routePolicies.LoadOrStore(n, newPolicies(n))
	}
	lists, _ := found.([]*policyList)
	return lists
}

// listsFor returns the lists that a filter may send on a route, and the filter's configuration for the route.
func (f *filter) listsFor(t *table, h *virtualHost, r *route) (all []sentList, config *tree.Node) {
	config, disabled := f.perRoute(t, h, r)
	add := func(lists []*policyList, own bool, why string) {
		if disabled && why == "" {
			why = "the filter is disabled here"
		}
		for _, l := range lists {
			notSent := why
			if !own && why == "" && l.stage != f.stage() {
				notSent = fmt.Sprintf("no filter has its stage, %d", l.stage)
			}
			all = append(all, sentList{l, own, notSent})
		}
	}
	hidden := ""
	if own := f.policiesOf(config); len(own) > 0 {
		add(own, true, "")
		hidden = "the filter's configuration for the route has rate_limits of its own"
	}
	add(f.policies, true, hidden)
	if len(f.policies) > 0 && hidden == "" {
		hidden = "the filter has rate_limits of its own"
	}
	add(r.policies, false, hidden)
	option := config.Field("vh_rate_limits").Enum("OVERRIDE", "INCLUDE", "IGNORE")
	switch {
	case r.action.Field("include_vh_rate_limits").Bool(false), option == "INCLUDE":
	case hidden != "":
	case option == "IGNORE":
		hidden = "vh_rate_limits is IGNORE"
	case len(r.policies) > 0 && config.Field("vh_rate_limits").Exists():
		hidden = "the route has rate_limits of its own, and vh_rate_limits is OVERRIDE"
	case len(r.policies) > 0:
		hidden = hiddenByRoute
	}
	add(h.policies, false, hidden)
	return all, config
}
