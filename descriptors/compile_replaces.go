package descriptors

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// replacement is a limit with the names of the limits that it replaces.
type replacement struct {
	limit *Limit
	names []string
	path  func() string
}

// collectReplacements records the names that the limits of r replace, for resolveReplacements.
func (c *compiler) collectReplacements(d *domain, r *Rule, cfg *rules.Descriptor) {
	active := r.Limits
	for i := range cfg.RateLimits {
		l := &cfg.RateLimits[i]
		if l.NeverDenies() {
			continue // replaces nothing
		}
		if len(l.Replaces) > 0 {
			path := func() string { return limitPath(d, r.node, cfg.List, i) }
			r.ensureOptional().replacedNames = append(r.ensureOptional().replacedNames, l.Replaces...)
			c.replacements = append(c.replacements, replacement{active[0], l.Replaces, path})
		}
		active = active[1:]
	}
}

// resolveReplacements assigns an id to each name that a limit of the domain replaces, so that
// requests compare numbers.
func (c *compiler) resolveReplacements(d *domain, limits []*Limit) {
	byName := map[string][]*Limit{}
	for _, l := range limits {
		if l.Name != "" {
			byName[l.Name] = append(byName[l.Name], l)
		}
	}
	c.checkLeases()
	ids := map[string]int32{}
	for _, r := range c.replacements {
		for _, name := range r.names {
			name = rules.SafeName(name)
			if len(byName[name]) == 0 {
				c.warn(rules.ReplacesNone, r.limit.Pos, r.path(),
					"replaces %q, but no limit of the domain has that name", rules.Shorten(name))
				continue
			}
			id := ids[name]
			if id == 0 {
				d.replaceable++
				id = int32(d.replaceable)
				ids[name] = id
				for _, l := range byName[name] {
					l.nameID = id
					l.Rule.replaceable = true
				}
			}
			if optional := r.limit.Rule.ensureOptional(); !slices.Contains(optional.replaces, id) {
				optional.replaces = append(optional.replaces, id)
			}
		}
	}
	c.warnMutual()
	c.replacements = nil
}

// ReplacesSome reports whether the rule replaces limits.
func (r *Rule) ReplacesSome() bool { return r.optional != nil && len(r.optional.replaces) > 0 }

// Replaces reports whether the rule replaces a limit of a request that matches both.
func (r *Rule) Replaces(l *Limit) bool {
	return r.optional != nil && l.nameID != 0 && slices.Contains(r.optional.replaces, l.nameID)
}

// warnMutual warns of two limits that replace each other: a request that matches both is limited by
// neither. It reports each pair of names once, at the later limit.
func (c *compiler) warnMutual() {
	type pair struct{ name, other string }
	first := map[pair]*Limit{}
	for _, r := range c.replacements {
		own := r.limit.Name
		if own == "" {
			continue
		}
		for _, name := range r.names {
			if _, seen := first[pair{own, name}]; !seen {
				first[pair{own, name}] = r.limit
			}
			other := first[pair{name, own}]
			if other == nil || other == r.limit || name == own {
				continue
			}
			c.warn(rules.ReplacesMutual, r.limit.Pos, r.path(),
				"this limit and %q at %s replace each other; a request that matches both is limited by neither",
				rules.Shorten(name), other.Pos)
		}
	}
}
