package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/quota"
)

// Divided returns the word quota of the rule's limit, or nil if Envoys ask for each request.
func (r *Rule) Divided() *rules.Quota { return r.few().quota }

// QuotaLimit returns what is divided among Envoys for each bucket of the rule, or nil if the rule is not divided. With shadow
// nothing is denied, as of a rule in shadow mode: its limit is there all the same, for [quota.Divider.Beyond].
func (r *Rule) QuotaLimit(shadow bool) *quota.Limit {
	q := r.Divided()
	if q == nil {
		return nil
	}
	l := &quota.Limit{Burst: q.Burst, MinTokens: q.MinTokens}
	t := r.Limits[0]
	switch {
	case r.Unlimited:
		l.Strategy = quota.AllowAll
	case r.Shadow, shadow:
		l.Strategy, l.Hits, l.Window = quota.AllowAll, uint64(t.RequestsPerUnit), t.Policy.Window
	case t.RequestsPerUnit == 0:
		l.Strategy = quota.DenyAll
	default:
		l.Hits, l.Window = uint64(t.RequestsPerUnit), t.Policy.Window
	}
	return l
}

// Divides reports whether a limit of the set is divided among Envoys.
func (s *Set) Divides() bool { return s.divides }

// Divided returns the domains that have limits which are divided among Envoys. A nil set has none.
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

// Match returns the rule that the entries of a descriptor lead to, or nil. It allocates nothing.
func (s *Set) Match(domain []byte, entries []Entry) *Rule {
	d := s.domains[string(domain)]
	if d == nil {
		return nil
	}
	if n := d.match(entries); n != nil {
		return n.rule
	}
	return nil
}

// divide notes that the limit of a rule is divided, and checks what holds for its descriptor.
func (c *compiler) divide(d *domain, n *node, r *Rule, cfg *rules.Descriptor) {
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
		c.fail(l.Pos, path, `"quota" stands in a list of several limits: Envoy has one bucket for a descriptor; write one rate_limit`)
	}
	if r.Quota {
		c.fail(l.Pos, path, `"quota_mode" has no meaning beside "quota": an Envoy asks for one descriptor of a request alone; remove it`)
	}
	if r.few().shared != nil {
		c.fail(l.Pos, path, `"share_threshold" has no meaning beside "quota": each value is a bucket of its own in Envoy; remove one of them`)
	}
	r.ensureRare().quota = l.Quota
	c.set.divides, d.divides = true, true
}
