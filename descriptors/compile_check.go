package descriptors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// nodePath returns the [rules.Diagnostic.Path] of n.
func nodePath(d *domain, n *node) string {
	var path []rules.Level
	for _, n := range n.lineage() {
		path = append(path, n.level())
	}
	return levelsPath(d, path)
}

// levelsPath returns the [rules.Diagnostic.Path] of a path.
func levelsPath(d *domain, path []rules.Level) string {
	text := rules.DomainPath(d.name)
	for _, l := range path {
		text = l.Below(text)
	}
	return text
}

// limitPath returns the [rules.Diagnostic.Path] of limit i of a descriptor.
func limitPath(d *domain, n *node, list bool, i int) string {
	if list {
		return fmt.Sprintf("%s > rate_limits[%d]", nodePath(d, n), i)
	}
	return nodePath(d, n) + " > rate_limit"
}

// checkDescriptor checks a descriptor from any source.
func (c *compiler) checkDescriptor(d *domain, n *node) {
	if n.key == "" {
		c.fail(n.pos, nodePath(d, n), "the key is missing or empty; every descriptor needs one")
	}
	if n.share && !n.matchesSeveral() {
		c.fail(n.pos, nodePath(d, n), `"share_threshold" requires a "*" in "value" or "key", or "values" or "cidr"`)
	}
}

const penaltyInQuotaMode = `"penalty" is not supported with "quota_mode: true", where a used-up quota does not deny a request if another is left; remove one of them`

// checkLimits checks the limits of a descriptor from any source.
func (c *compiler) checkLimits(d *domain, n *node, cfg *rules.Descriptor) {
	if rules.AreCandidates(cfg.RateLimits) {
		c.fail(cfg.Pos, nodePath(d, n),
			`"shadow: true" is for items of "rate_limits" next to an active limit; to try a single limit, set "shadow_mode: true" next to "rate_limit"`)
	}
	first := map[counterKey]int{}
	for i := range cfg.RateLimits {
		l := &cfg.RateLimits[i]
		path := func() string { return limitPath(d, n, cfg.List, i) } // built only for errors
		if l.Name != "" && slices.Contains(l.Replaces, l.Name) {
			c.fail(l.Pos, path(), "a limit cannot replace itself: its own name is %q", rules.Shorten(l.Name))
		}
		if slices.Contains(l.Replaces, "") {
			c.fail(l.Pos, path(), "an item of replaces has no name; add the name of the limit to replace")
		}
		if l.Unlimited {
			if len(cfg.RateLimits) > 1 {
				c.fail(l.Pos, path(), "an unlimited limit must be the only limit of its list")
			}
			continue
		}
		if l.Penalty != nil && cfg.QuotaMode {
			c.fail(l.Pos, path(), penaltyInQuotaMode)
		}
		switch {
		case l.Unit.Seconds() == 0:
			c.fail(l.Pos, path(), "unknown unit %d; allowed are %s", l.Unit, strings.Join(rules.UnitNames(), ", "))
		default:
			wrong := l.MistakeMessages()
			if missing := l.MissingNameMistake(); missing != "" {
				wrong = append(wrong, missing)
			}
			for _, message := range wrong {
				c.fail(l.Pos, path(), "%s", message)
			}
			// Package rulefile has checked the range of each field, but other sources may not.
			if p := l.Policy(); len(wrong) == 0 {
				if err := p.Validate(); err != nil {
					c.fail(l.Pos, path(), "%v", err)
				}
			}
		}
		if len(cfg.RateLimits) > 1 {
			c.checkSameCounter(cfg.RateLimits, i, first, path)
		}
	}
}

// counterKey identifies the counters of a limit of a list: their kind and the field counter.
type counterKey struct {
	kind uint64
	name string
}

// checkSameCounter reports an error if a limit before limit i of a list has the same counters, whose
// first limits are in first.
func (c *compiler) checkSameCounter(all []rules.Limit, i int, first map[counterKey]int, path func() string) {
	l := &all[i]
	key := counterKey{l.CounterKind(c.opt.CalendarMonths), l.Counter}
	j, found := first[key]
	if !found {
		first[key] = i
		return
	}
	if l.IsSoft() && l.Counter == "" {
		if c.sameCounters(all[:i], l) >= maxSameSoft {
			c.fail(l.Pos, path(), "more than %d soft limits of one list have the same algorithm and window",
				maxSameSoft)
		}
		return // each has its own counters
	}
	by := ""
	if all[j].CounterKind(false) != l.CounterKind(false) {
		by = ", since --calendar-months aligns both with the calendar"
	}
	c.fail(l.Pos, path(), "two limits of one list have the same algorithm and window%s, the first at %s; %s", by,
		all[j].Pos, l.SameCounterHelp())
}

// Advice returns warnings about rules that are valid but may surprise operators of a service that
// counts in memory, or in a store if stored is set, and about unused acknowledgements. `sluice
// check` prints them; a service logs only those of [StoreAdvice].
func Advice(s *Set, stored bool) rules.Diagnostics {
	// Call both, so that acknowledgements for either count as used.
	ds := restartAdvice(s)
	other := StoreAdvice(s)
	if stored {
		ds = other
	}
	return append(append(ds, limitAdvice(s)...), s.allowances.Unused()...)
}

// restartAdvice warns of counters whose loss at a restart matters, once for each domain.
func restartAdvice(s *Set) (ds rules.Diagnostics) {
	warned := map[*domain]bool{}
	for _, l := range s.Limits {
		d := l.Rule.domain
		if l.Rule.Unlimited || l.Candidate && !l.Soft || !l.HasWindow() || memoryTime(&l.Policy) < 24*time.Hour ||
			s.allowances.Allow(rules.Restart, l.Pos) || warned[d] {
			continue
		}
		warned[d] = true
		ds = append(ds, rules.Diagnostic{
			Pos: l.Pos, Severity: rules.Warning, Code: rules.Restart, Path: nodePath(d, l.Rule.node),
			Message: "counters in memory are lost at a restart, which matters for windows of a day or more",
		})
	}
	return ds
}

// memoryTime returns how long the state of a counter of p matters, including its penalty.
func memoryTime(p *limiter.Policy) time.Duration {
	if p.Penalty == nil {
		return rules.RecoveryTime(p)
	}
	return max(rules.RecoveryTime(p), slices.Max(p.Penalty.Steps()))
}

// StoreAdvice warns of fields that do less if counters are in a store.
func StoreAdvice(s *Set) (ds rules.Diagnostics) {
	for _, name := range s.names {
		d := s.domains[name]
		if d.maxCounters == 0 || s.allowances.Allow(rules.MaxCounters, d.maxCountersAt) {
			continue
		}
		ds = append(ds, rules.Diagnostic{
			Pos: d.maxCountersAt, Severity: rules.Warning, Code: rules.MaxCounters, Path: rules.DomainPath(name),
			Message: "max_counters bounds the counters that each replica keeps for --store-fallback, not those in the store; set the store's maxmemory for that",
		})
	}
	return ds
}
