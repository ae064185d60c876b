package descriptors

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// defaultUse records how an item of defaults was used.
type defaultUse struct {
	matches, applied bool
	// failed is true if a rule that does not support the item's fields was reported.
	failed bool
}

func (c *compiler) useOf(e *rules.DefaultItem) *defaultUse {
	if c.defaultUses == nil {
		c.defaultUses = map[*rules.DefaultItem]*defaultUse{}
	}
	u := c.defaultUses[e]
	if u == nil {
		u = &defaultUse{}
		c.defaultUses[e] = u
	}
	return u
}

// appliedDefaults is the item of defaults that set fields of a rule, or nil, and the same for those
// of rate_limit.
type appliedDefaults struct{ rule, limit *rules.DefaultItem }

// withDefaults returns a copy of cfg with the fields of the item of defaults that applies to its
// path. If it sets none, withDefaults returns cfg.
func (c *compiler) withDefaults(
	d *domain, path []rules.Level, cfg *rules.Descriptor,
) (_ *rules.Descriptor, by appliedDefaults) {
	if c.opt.Defaults == nil || len(cfg.RateLimits) == 0 {
		return cfg, by
	}
	l := cfg.RateLimits[0]
	fitting := c.opt.Defaults.Matching(d.name, path, l.Name)
	for _, e := range fitting {
		c.useOf(e).matches = true
	}
	if len(fitting) == 0 {
		return cfg, by
	}
	e := fitting[0]
	if e.Set != nil && (cfg.Value != "" || isWildcard(cfg.Key)) {
		c.useOf(e).applied = true
		c.failDefaults(e, levelsPath(d, path), l.Pos,
			`"values", "cidr" and "prefix" require a key without "value" and "*"`)
		return cfg, by
	}
	merged := *cfg
	if merged.SetDefaults(e) {
		c.useOf(e).applied = true
		cfg = &merged
		by.rule = e
	}
	if !e.SetsLimit() || l.Unlimited || cfg.List || l.HasDefaultFields() || l.Unit.Seconds() == 0 {
		return cfg, by
	}
	c.useOf(e).applied = true
	l = l.WithDefaults(e)
	wrong := l.MistakeMessages()
	if missing := l.MissingNameMistake(); missing != "" {
		wrong = append(wrong, missing)
	}
	if l.Penalty != nil && cfg.QuotaMode {
		wrong = append(wrong, penaltyInQuotaMode)
	}
	if len(wrong) > 0 {
		c.failDefaults(e, levelsPath(d, path), l.Pos, strings.Join(wrong, "; "))
		return cfg, by
	}
	merged.RateLimits = []rules.Limit{l}
	by.limit = e
	return &merged, by
}

// failDefaults reports that a rule does not support the fields of e. It reports the first such rule
// only.
func (c *compiler) failDefaults(e *rules.DefaultItem, path string, pos rules.Pos, wrong string) {
	u := c.useOf(e)
	if u.failed {
		return
	}
	u.failed = true
	c.fail(e.Pos, e.At, "the rule %s at %s does not support these fields: %s; change the fields, or add an item for this rule", path, pos, wrong)
}

// warnUnusedDefaults warns of defaults that apply to no rule.
func (c *compiler) warnUnusedDefaults() {
	if c.opt.Defaults == nil || c.set.Empty() {
		return // the rules are still to come, as at a start over xDS
	}
	for _, name := range c.opt.Defaults.Names() {
		dd := c.opt.Defaults.ByDomain[name]
		if name != rules.EveryDomain && c.set.domains[name] == nil {
			c.warn(rules.UnusedDefaults, dd.Pos, rules.DomainPath(name), "no rules for this domain, so its defaults have no effect%s", rules.DidYouMean(name, c.set.names))
			continue
		}
		for _, e := range dd.Items {
			c.warnUnused(name, e)
		}
	}
}

// warnUnused warns if an item of defaults applies to no rule. domain may be [rules.EveryDomain].
func (c *compiler) warnUnused(domain string, e *rules.DefaultItem) {
	u := c.useOf(e)
	switch {
	case u.applied || e.Path == nil && e.Name == "":
	case u.matches:
		c.warn(rules.UnusedDefaults, e.Pos, e.At, "these defaults apply to no rule: the rules with %s are unlimited, lists, have fields of their own, or match an earlier item", e.Target())
	default:
		candidates := map[string]bool{}
		for _, l := range c.set.Limits {
			switch {
			case domain != rules.EveryDomain && domain != l.Rule.Domain():
			case e.Path != nil:
				candidates[l.Rule.Path()] = true
			case l.Name != "":
				candidates[l.Name] = true
			}
		}
		delete(candidates, e.Text()) // that of a later limit of a list, or set by defaults
		c.warn(rules.UnusedDefaults, e.Pos, e.At, "no rule has %s%s", e.Target(),
			rules.DidYouMean(e.Text(), slices.Sorted(maps.Keys(candidates))))
	}
}
