package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// HasDeniedResponses reports whether a rule or domain has the field denied_response.
func (s *Set) HasDeniedResponses() bool { return s.denied }

// DeniedResponse returns the field denied_response for a request that descriptor i of the plan
// denies: that of its rule, or else that of its domain. It returns nil if neither has one.
func (s *Set) DeniedResponse(p *Plan, i int) *rules.DeniedResponse {
	m := &p.Matches[i]
	rule := m.Rule
	if m.override != nil {
		rule = m.override.rule
	}
	if rule != nil && rule.optional != nil && rule.optional.denied != nil {
		return rule.optional.denied
	}
	if d := s.domains[p.DomainName]; d != nil {
		return d.denied
	}
	return nil
}

// deniedResponse sets the domain's denied_response: that of its first file that has one, and that
// of the defaults if none has.
func (c *compiler) deniedResponse(d *domain, configs []*rules.Config) {
	for _, cfg := range configs {
		switch {
		case cfg.Denied == nil:
		case d.denied == nil:
			d.denied = cfg.Denied
		case d.denied.String() != cfg.Denied.String():
			c.warn(rules.Differ, cfg.Pos, rules.DomainPath(d.name), "the files of this domain differ in denied_response; the first, %s, applies", rules.Shorten(d.denied.String()))
		}
	}
	for _, dd := range c.opt.Defaults.ForDomain(d.name) {
		if d.denied == nil {
			d.denied = dd.Denied
		}
	}
	c.set.denied = c.set.denied || d.denied != nil
}
