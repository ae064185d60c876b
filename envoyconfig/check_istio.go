package envoyconfig

import (
	"fmt"

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
		if sends(p) {
			k.apart(p, all)
		}
	}
}

// apart holds that one listener has the filter and the rate_limits.
func (k *checker) apart(p *istio.Patch, all []*istio.Patch) {
	var first *istio.Patch
	for _, o := range all {
		if !limits(o) {
			continue
		}
		if p.Meets(o) {
			return
		}
		if first == nil {
			first = o
		}
	}
	if first == nil {
		return
	}
	why, pos := p.Differs(first)
	k.report(NeverAsked, rules.Error, pos, "nothing sends the rate_limits of this patch: no listener has them and the filter, at %v: %s: make both alike", first.Node.Pos(), why)
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
