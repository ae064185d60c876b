package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
)

// patches holds that the patches about rate limits do something, and that those which need each other reach the same
// proxies.
func (k *checker) patches() {
	all := k.config.allPatches()
	for _, p := range all {
		if !limits(p) && !sends(p) {
			continue
		}
		if idle := p.Idle(all); idle != nil {
			severity := rules.Error
			if !idle.Sure {
				severity = rules.Warning
			}
			k.report(NeverAsked, severity, idle.At.Pos(), "%s", idle.Why)
		}
		k.apart(p, all)
	}
	for _, m := range k.config.managers {
		if m.chain != nil {
			for _, f := range m.limiting() {
				k.patchedCluster(m, f, all)
			}
		}
	}
}

// apart holds that one listener has the filter and the rate_limits.
func (k *checker) apart(p *istio.Patch, all []*istio.Patch) {
	var meets, others []*istio.Patch
	for _, o := range all {
		switch {
		case !complete(p, o):
		case p.Meets(o):
			meets = append(meets, o)
		default:
			others = append(others, o)
		}
	}
	if len(meets) > 0 {
		why, pos := p.Misplaced(meets[0])
		if why != "" && !slices.ContainsFunc(meets, func(o *istio.Patch) bool { why, _ := p.Misplaced(o); return why == "" }) {
			k.report(NeverAsked, rules.Warning, pos, "this probably does not reach the proxies of the patch at %v: %s: put it into the namespace of the gateways", meets[0].Node.Pos(), why)
		}
	} else if len(others) > 0 && sends(p) {
		why, pos := p.Differs(others[0])
		k.report(NeverAsked, rules.Error, pos, "nothing sends the rate_limits of this patch: no listener has them and the filter, at %v: %s: make both alike", others[0].Node.Pos(), why)
	}
}

// patchedCluster holds that the proxies which get a filter get the cluster of its service.
func (k *checker) patchedCluster(m *manager, f *filter, all []*istio.Patch) {
	name := f.config.At("rate_limit_service", "grpc_service", "envoy_grpc", "cluster_name")
	var names []string
	var elsewhere *istio.Patch
	for _, p := range all {
		added := p.Value.Field("name").Text
		switch {
		case p.ApplyTo != istio.Cluster || !p.Value.There():
		case added == name.Text && p.Merges():
			k.report(Cluster, rules.Error, p.Node.Pos(), "MERGE renames the clusters that match to %s, and adds none: write operation: ADD", name.Shown())
			return
		case added == name.Text && m.chain.Has(p):
			return
		case added == name.Text:
			elsewhere = p
		case p.Whole():
			names = append(names, added)
		}
	}
	switch {
	case !name.There():
	case elsewhere != nil:
		k.report(Cluster, rules.Error, name.Pos(), "Envoy rejects the filter, since its proxy does not get the cluster %s: the patch that adds it, at %v, is for other proxies: give both one context, selector and namespace",
			name.Shown(), elsewhere.Node.Pos())
	case istio.IsCluster(name.Text):
	case len(rules.Nearest(name.Text, names)) > 0:
		k.report(Cluster, rules.Error, name.Pos(), "no patch adds the cluster %s, and Envoy rejects the filter: correct the name%s", name.Shown(), rules.DidYouMean(rules.Nearest(name.Text, names)))
	default:
		k.report(Unknown, rules.Note, name.Pos(), "no patch in these files adds the cluster %s, and Istio's own are named such as outbound|8081||sluice.default.svc.cluster.local: give the EnvoyFilter that adds it, too", name.Shown())
	}
}

// networkFilter holds that a patch of network filters does not add an HTTP filter.
func (c *Config) networkFilter(p *istio.Patch) {
	typeName, config := p.Value.Field("typed_config").Typed()
	if typeName == api.RateLimit || typeName == api.RateLimitQuota {
		c.judge.Wrong = append(c.judge.Wrong, fmt.Errorf("%v: Envoy has no network filter %s, and rejects it: write applyTo: HTTP_FILTER", p.Node.Field("apply_to").Pos(), typeName))
		return
	}
	c.judge.Expect(config, typeName)
}
