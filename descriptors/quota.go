package descriptors

import "github.com/sluice-ratelimit/sluice/descriptors/rules"

// Divided returns the field quota of the rule's limit, or nil if the limit is not divided among
// Envoys.
func (r *Rule) Divided() *rules.Quota { return r.optionalOrZero().quota }

// Divides reports whether a limit of the set is divided among Envoys.
func (s *Set) Divides() bool { return s.divides }

// Divided returns the domains with divided limits. s may be nil.
func (s *Set) Divided() (names []string) {
	if s == nil {
		return nil
	}
	for _, name := range s.names {
		if s.domains[name].divides {
			names = append(names, name)
		}
	}
	return names
}

// Knows reports whether a domain is configured.
func (s *Set) Knows(domain []byte) bool { return s.domains[string(domain)] != nil }

// Match returns the rule that a descriptor matches, or nil. It allocates nothing.
func (s *Set) Match(domain []byte, entries []Entry) *Rule {
	d := s.domains[string(domain)]
	if d == nil {
		return nil
	}
	if n := d.match(entries, new(addressReader)); n != nil {
		return n.rule
	}
	return nil
}

// compileQuota sets and checks the quota of a rule.
func (c *compiler) compileQuota(d *domain, n *node, r *Rule, cfg *rules.Descriptor) {
	var l *rules.Limit
	for i := range cfg.RateLimits {
		if cfg.RateLimits[i].Quota != nil {
			l = &cfg.RateLimits[i]
		}
	}
	if l == nil {
		return
	}
	path := nodePath(d, n)
	if len(cfg.RateLimits) > 1 {
		c.fail(l.Pos, path, `"quota" is not supported in a list of several limits, since Envoy has one bucket for each descriptor; use rate_limit`)
	}
	if r.Quota {
		c.fail(l.Pos, path, `"quota_mode" is not supported with "quota": Envoy requests a quota for each descriptor separately; remove it`)
	}
	if r.optionalOrZero().shared != nil {
		c.fail(l.Pos, path, `"share_threshold" is not supported with "quota": each value has its own bucket in Envoy; remove one of them`)
	}
	r.ensureOptional().quota = l.Quota
	c.set.divides = true
	d.divides = true
}
