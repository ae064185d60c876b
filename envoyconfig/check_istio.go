package envoyconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
)

// checkPatches checks that patches about rate limits have an effect, and that patches which need each other reach the
// same proxies.
func (k *checker) checkPatches() {
	all := k.config.patches
	severity := rules.Error
	if slices.ContainsFunc(k.config.managers, func(m *manager) bool { return m.chain.IsComplete() }) {
		severity = rules.Warning // the filter of other patches may be in another file
	}
	for _, p := range all {
		if ignored := p.NoEffect(all); ignored != nil && (p.AddsFilter || p.AddsPolicies) {
			k.report(NoEffect, ignored.Severity, ignored.At.Pos(), "%s", ignored.Why)
		}
		k.checkComplement(p, all, severity)
	}
	clusters := slices.DeleteFunc(slices.Clone(all), func(p *istio.Patch) bool { return p.ApplyTo != istio.Cluster })
	for _, m := range k.config.managers {
		if m.chain != nil {
			for _, f := range m.rateLimitFilters() {
				k.checkPatchCluster(m, f, clusters)
			}
		}
	}
}

// checkComplement checks that a listener with the rate_limits of a patch may get the filter of another one, and that a
// patch for gateways reaches those of the other.
func (k *checker) checkComplement(p *istio.Patch, all []*istio.Patch, severity rules.Severity) {
	var disjoint *istio.Patch
	for _, o := range all {
		switch {
		case !p.Complements(o):
		case !p.MayShareListener(o):
			if !isLocal(o) {
				disjoint = cmp.Or(disjoint, o)
			}
		default:
			if p.MissesGateways(o) {
				k.report(NoEffect, rules.Warning, p.Node.Pos(), "this patch is for gateways in its namespace only, and the patch at %v also for those in istio-system, so it probably does not reach them: move it to the namespace of the gateways", o.Node.Pos())
			}
			return
		}
	}
	if disjoint != nil && p.AddsPolicies {
		k.report(NoEffect, severity, p.Node.Pos(), "no filter in these files sends the rate_limits of this patch, because no listener gets both the patch and the filter at %v: give both the same context, namespace and workloadSelector", disjoint.Node.Pos())
	}
}

// checkPatchCluster checks that the proxies which get a filter also get the cluster of its service.
func (k *checker) checkPatchCluster(m *manager, f *filter, all []*istio.Patch) {
	at := f.config.At("rate_limit_service", "grpc_service", "envoy_grpc", "cluster_name")
	var names []string
	var unreached *istio.Patch
	for _, p := range all {
		name := p.Value.Field("name").Text
		switch {
		case name == "":
		case name != at.Text:
			names = append(names, name)
		case p.IsMerge():
			k.report(Cluster, rules.Error, p.Node.Pos(), "MERGE renames each cluster that it matches to %s, and adds none: write operation: ADD", at.Describe())
			return
		case m.chain.Contains(p):
			return
		default:
			unreached = p
		}
	}
	near := rules.DidYouMean(at.Text, names)
	switch {
	case !at.Exists():
	case unreached != nil:
		k.report(Cluster, rules.Error, at.Pos(), "proxies with this filter do not get the cluster %s, so every call fails: the patch that adds it, at %v, is for other proxies: give both patches the same context, selector and namespace",
			at.Describe(), unreached.Node.Pos())
	case strings.Contains(at.Text, "|"): // istiod generates it from a Service
	case near != "":
		k.report(Cluster, rules.Error, at.Pos(), "no patch adds the cluster %s, so every call fails: correct the name%s", at.Describe(), near)
	default:
		k.report(Unknown, rules.Note, at.Pos(), "no patch in these files adds the cluster %s, and clusters of Istio have names such as outbound|8081||sluice.default.svc.cluster.local: also pass the EnvoyFilter that adds it", at.Describe())
	}
}
