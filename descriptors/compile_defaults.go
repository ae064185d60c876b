package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// entryUse says which rules an item of defaults was for.
type entryUse struct {
	fits, holds bool
	// wrong is the index of the diagnostic about the first rule that the words do not
	// suit, or -1. More counts the other rules.
	wrong, more int
}

// use returns the entryUse of e.
func (c *compiler) use(e *rules.DefaultItem) *entryUse {
	if c.uses == nil {
		c.uses = map[*rules.DefaultItem]*entryUse{}
	}
	u := c.uses[e]
	if u == nil {
		u = &entryUse{wrong: -1}
		c.uses[e] = u
	}
	return u
}

// withDefaults returns a copy of cfg with the words of the item of defaults that holds for
// it, and that item. Without one it returns cfg itself.
func (c *compiler) withDefaults(d *domain, n *node, cfg *rules.Descriptor) (*rules.Descriptor, *rules.DefaultItem) {
	if c.opt.Defaults == nil || len(cfg.RateLimits) == 0 {
		return cfg, nil
	}
	var path []rules.Level
	for _, n := range n.lineage() {
		path = append(path, n.level())
	}
	l := cfg.RateLimits[0]
	fitting := c.opt.Defaults.Fitting(d.name, path, l.Name)
	for _, e := range fitting {
		c.use(e).fits = true
	}
	if len(fitting) == 0 || cfg.List || l.Unlimited || l.OwnWords() || l.Unit.Seconds() == 0 {
		return cfg, nil
	}
	e := fitting[0]
	c.use(e).holds = true
	l = l.With(e)
	if wrong := l.WrongWords(); len(wrong) > 0 {
		c.unfit(e, nodePath(d, n), l.Pos, strings.Join(wrong, "; "))
		return cfg, nil
	}
	given := *cfg
	given.RateLimits = []rules.Limit{l}
	return &given, e
}

// unfit reports that the words of e do not suit a rule: the first, and how many more.
func (c *compiler) unfit(e *rules.DefaultItem, path string, pos rules.Pos, wrong string) {
	u := c.use(e)
	if u.wrong >= 0 {
		u.more++
		return
	}
	u.wrong = len(c.found.All)
	c.fail(e.Pos, e.At, "these words do not fit the rule %s at %s: %s", path, pos, wrong)
}

// finishDefaults completes the diagnostics about defaults after the last rule, and warns
// of items that hold for no rule.
func (c *compiler) finishDefaults() {
	if c.opt.Defaults == nil {
		return
	}
	for _, u := range c.uses {
		if u.wrong >= 0 && u.more > 0 && u.wrong < len(c.found.All) {
			c.found.All[u.wrong].Message += fmt.Sprintf(" (and %d more rules)", u.more)
		}
	}
	if c.set.Empty() {
		return // the rules are still to come, as at a start over xDS
	}
	for _, name := range c.opt.Defaults.Names() {
		dd := c.opt.Defaults.ByDomain[name]
		if name != rules.EveryDomain && c.set.domains[name] == nil {
			c.warn(rules.UnusedDefaults, dd.Pos, rules.DomainPath(name), "no rules are for this domain, so that its defaults have no effect%s", rules.DidYouMean(rules.Nearest(name, c.set.names)))
			continue
		}
		for _, e := range dd.Items {
			c.warnUnused(name, e)
		}
	}
}

// warnUnused warns if an item of defaults, for one domain or all, holds for no rule.
func (c *compiler) warnUnused(domain string, e *rules.DefaultItem) {
	u := c.use(e)
	switch {
	case u.holds || e.Path == nil && e.Name == "":
	case u.fits:
		c.warn(rules.UnusedDefaults, e.Pos, e.At, "no rule gets these words: those of %s are unlimited, a list, have words of their own, or have an item that comes before", e.Target())
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
		c.warn(rules.UnusedDefaults, e.Pos, e.At, "no rule has %s%s", e.Target(), rules.DidYouMean(rules.Nearest(e.Text(), slices.Sorted(maps.Keys(candidates)))))
	}
}
