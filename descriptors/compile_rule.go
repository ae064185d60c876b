package descriptors

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// rule compiles the limits of a descriptor, cfg. own is the descriptor without defaults.
func (c *compiler) rule(d *domain, n *node, cfg, own *rules.Descriptor, by appliedDefaults) {
	c.warnOnlySoft(d, n, cfg, own)
	lineage := n.lineage()
	r := popFirst(&c.rules)
	*r = Rule{
		domain: d, node: n,
		Unlimited: cfg.RateLimits[0].Unlimited, Shadow: rules.ValueOr(cfg.ShadowMode, false), Quota: cfg.QuotaMode, choice: cfg.FirstWithRoom,
	}
	shared := sharedPatterns(lineage)
	counted := countedLevels(lineage)
	if cfg.Metadata != nil || shared != nil || counted != nil {
		r.optional = &optionalFields{metadata: cfg.Metadata, shared: shared, counted: counted}
	}
	if cfg.Denied != nil {
		r.ensureOptional().denied = cfg.Denied
		c.set.denied = true
	}
	if by.rule != nil {
		r.ensureOptional().defaults = by.rule
	}
	switch {
	case r.Shadow:
		r.mode = limiter.Shadow
	case r.Quota:
		r.mode = limiter.Quota
	}
	r.identity = newIdentity(d, lineage, shared)
	r.compileMetric(lineage, rules.ValueOr(cfg.DetailedMetric, false))
	c.checkLimits(d, n, cfg)
	before := len(c.set.Limits)
	active := c.compileLimits(r, cfg, by.limit, false, rules.CountActive(cfg.RateLimits))
	if candidates := c.compileLimits(r, cfg, by.limit, true, len(active)); len(candidates) > 0 {
		r.ensureOptional().candidates = candidates
	}
	r.Limits = active
	c.collectLeaseLimits(r, cfg, by.limit)
	c.compileQuota(d, n, r, cfg)
	if cfg.List {
		labelLimits(c.set.Limits[before:])
		c.checkLabels(d, n, c.set.Limits[before:])
	}
	n.rule = r
	c.collectReplacements(d, r, cfg)
}

// compileLimits compiles either the active limits of a rule or those that never deny. active is the number
// of active limits; the default of count_refused depends on it, for candidates too.
func (c *compiler) compileLimits(
	r *Rule, cfg *rules.Descriptor, defaults *rules.DefaultItem, candidates bool, active int,
) []*Limit {
	before := len(c.set.Limits)
	for i := range cfg.RateLimits {
		b := cfg.RateLimits[i]
		if c.opt.CalendarMonths {
			b.UseCalendarMonth()
		}
		if b.NeverDenies() != candidates {
			continue
		}
		t := Terms{
			RequestsPerUnit: b.RequestsPerUnit, Unit: b.Unit, UnitMultiplier: max(1, b.UnitMultiplier), Candidate: candidates,
			Hidden: rules.ValueOr(b.Hidden, false), Soft: b.IsSoft(), NotifyAt: b.NotifyAt,
		}
		if !b.Unlimited {
			t.Policy = b.Policy()
			t.Policy.CountRefused = rules.ValueOr(b.CountRefused,
				r.domain.countsRefused(t.Policy.Algorithm, active, t.Soft))
			t.Policy.NoBlocks = t.Policy.NoBlocks || r.choice && !candidates || b.Counter != ""
			t.nth = c.sameCounters(cfg.RateLimits[:i], &b)
			t.setKind()
			c.shareCounter(r, &t, &b)
			c.set.reports = c.set.reports || t.Soft || t.NotifyAt.Exist()
			c.set.notices = c.set.notices || t.NotifyAt.Exist()
		}
		l := popFirst(&c.limits)
		*l = Limit{
			Terms: c.sharedTerms(t), Reservation: newReservation(b.Reserve), Name: rules.SafeName(b.Name), Rule: r, Pos: b.Pos, Defaults: defaults,
			Index: int32(len(c.set.Limits)),
		}
		c.compileTable(l, &b)
		c.set.Limits = append(c.set.Limits, l)
	}
	return slices.Clip(c.set.Limits[before:])
}

// setKind sets the kind of the limit's counters.
func (t *Terms) setKind() {
	t.kind = rules.CounterKind(&t.Policy, t.Candidate) ^ uint64(t.nth)<<36 // bits that no kind uses
}

// maxSameSoft is the maximum number of soft limits of a list with the same algorithm and window.
const maxSameSoft = 16

// sameCounters returns the number of limits that never deny, among those earlier in the list, whose
// counters the soft limit l would have. Another limit has none.
func (c *compiler) sameCounters(earlier []rules.Limit, l *rules.Limit) (n uint8) {
	if !l.IsSoft() || l.Counter != "" {
		return 0
	}
	kind := l.CounterKind(c.opt.CalendarMonths)
	for i := range earlier {
		if earlier[i].NeverDenies() && earlier[i].Counter == "" &&
			earlier[i].CounterKind(c.opt.CalendarMonths) == kind {
			n++
		}
	}
	return n
}

// countsRefused returns the default of count_refused for a descriptor with the given number of
// limits that can deny. Soft limits count all hits, because the requests pass.
func (d *domain) countsRefused(a limiter.Algorithm, limits int, soft bool) bool {
	if soft {
		return a != limiter.Concurrency
	}
	return a == limiter.FixedWindow && limits == 1 && !d.allOrNothing
}

// sharedPatterns returns the value of optionalFields.shared.
func sharedPatterns(lineage []*node) [][]byte {
	var shared [][]byte
	for i, n := range lineage {
		if !n.share || !n.matchesSeveral() {
			continue
		}
		if shared == nil {
			shared = make([][]byte, len(lineage))
		}
		shared[i] = []byte(n.value)
		switch {
		case n.set != nil:
			shared[i] = []byte(sharedMark + n.set.id)
		case n.value == "":
			shared[i] = []byte("*") // a key with a `*` and no value matches any value
		}
	}
	return shared
}
