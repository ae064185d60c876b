package descriptors

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Compile turns configurations into a set of rules, in the given order. It checks what depends on
// several descriptors or configurations, and what applies to every source. The set is nil if a
// diagnostic is an error.
func Compile(configs []rules.Config, opt Options) (*Set, rules.Diagnostics) {
	c := &compiler{
		opt: opt, set: &Set{domains: map[string]*domain{}}, hasher: opt.HashKey.Hasher(), sha: hasher{state: sha256.New()},
		terms: map[Terms]*Terms{},
	}
	c.allocate(configs)
	c.collectAllowances(configs)
	byName := map[string][]*rules.Config{}
	for i := range configs {
		cfg := &configs[i]
		first, known := byName[cfg.Domain]
		switch {
		case cfg.Domain == "":
			c.fail(cfg.Pos, "", "the domain is empty; every configuration must name its domain")
			continue
		case known && !opt.MergeDomains:
			c.fail(cfg.Pos, rules.DomainPath(cfg.Domain),
				"duplicate domain, first at %s; merge the two, or set --merge-domains", first[0].Pos)
			continue
		case !known:
			c.set.names = append(c.set.names, cfg.Domain)
		}
		byName[cfg.Domain] = append(first, cfg)
	}
	slices.Sort(c.set.names)
	digests := make([]digest, 0, len(c.set.names))
	for _, name := range c.set.names {
		digests = append(digests, c.domain(name, byName[name]))
	}
	c.set.Hash = c.sha.set(digests)
	c.warnUnusedDefaults()
	if !opt.TablesLater {
		c.found.All = append(c.found.All, c.set.checkTables(func(name string) (*tables.Columns, string) {
			e, _ := opt.Tables.Table(name) // compileTable found it
			return e.ColumnsLocked(), e.Rows().Burst()
		})...)
	}
	if c.found.All.HasErrors() {
		return nil, c.found.All
	}
	if opt.RatelimitNames {
		c.set.chooseNames()
	}
	return c.set, c.found.All
}

// Build is Compile for a source that has findings of its own. If one is an error, some
// configurations are missing; Build compiles the others to find more errors, but drops their
// warnings, which may be due to the missing ones. It orders the diagnostics by file, in the order
// of names and then by name, and by line. It clears configs.
func Build(configs []rules.Config, found rules.Diagnostics, names []string, opt Options) (*Set, rules.Diagnostics) {
	incomplete := found.HasErrors()
	opt.clearConfigs = true
	set, more := Compile(configs, opt)
	all := slices.Clone(found)
	for _, d := range more {
		if !incomplete || d.Severity == rules.Error {
			all = append(all, d)
		}
	}
	order := make(map[string]int, len(names))
	for i, name := range names {
		order[name] = i
	}
	slices.SortStableFunc(all, func(a, b rules.Diagnostic) int {
		return cmp.Or(cmp.Compare(order[a.Pos.File], order[b.Pos.File]), cmp.Compare(a.Pos.File, b.Pos.File),
			cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	if incomplete {
		return nil, all
	}
	return set, all
}

// compiler is the state of one call of Compile.
type compiler struct {
	opt    Options
	set    *Set
	found  rules.Findings
	hasher identity.Hasher // without items
	sha    hasher
	// replacements and leaseLimits are those of the current domain.
	replacements []replacement
	leaseLimits  []leaseLimit
	// counters has the shared counters of the current domain, by name.
	counters    map[string]*sharedCounter
	defaultUses map[*rules.DefaultItem]*defaultUse
	// sharesExempt is a domain that has only the exempt of the defaults for every domain, or nil.
	sharesExempt *domain
	// terms has the distinct terms of all limits so far.
	terms map[Terms]*Terms
	// rules and limits are preallocated, since allocating each separately takes more memory.
	rules  []Rule
	limits []Limit
}

// allocate counts the rules and limits of configs and allocates memory for them.
func (c *compiler) allocate(configs []rules.Config) {
	nRules := 0
	nLimits := 0
	var count func(all []rules.Descriptor)
	count = func(all []rules.Descriptor) {
		for i := range all {
			nRules += min(1, len(all[i].RateLimits))
			nLimits += len(all[i].RateLimits)
			count(all[i].Descriptors)
		}
	}
	for i := range configs {
		count(configs[i].Descriptors)
	}
	c.rules = make([]Rule, nRules)
	c.limits = make([]Limit, nLimits)
	c.set.Limits = make([]*Limit, 0, nLimits)
}

// collectAllowances collects the acknowledgements of all files.
func (c *compiler) collectAllowances(configs []rules.Config) {
	c.set.allowances = rules.Allowances{}
	for i := range configs {
		maps.Copy(c.set.allowances, configs[i].Allowances)
	}
	if c.opt.Defaults != nil {
		maps.Copy(c.set.allowances, c.opt.Defaults.Allowances)
	}
}

// popFirst removes the first element of a slice and returns a pointer to it.
func popFirst[T any](s *[]T) *T {
	first := &(*s)[0]
	*s = (*s)[1:]
	return first
}

// sharedTerms returns the Terms that all limits with terms equal to t share.
func (c *compiler) sharedTerms(t Terms) *Terms {
	same := c.terms[t]
	if same == nil {
		same = new(t)
		same.Policy.Prepare()
		c.terms[t] = same
	}
	return same
}

func (c *compiler) fail(pos rules.Pos, path, format string, args ...any) {
	c.found.Add(rules.Diagnostic{Pos: pos, Severity: rules.Error, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) warn(code rules.Code, pos rules.Pos, path, format string, args ...any) {
	if !c.set.allowances.Allow(code, pos) {
		c.found.Add(rules.Diagnostic{
			Pos: pos, Severity: rules.Warning, Code: code, Path: path, Message: fmt.Sprintf(format, args...),
		})
	}
}

func (c *compiler) domain(name string, configs []*rules.Config) digest {
	d := &domain{
		name: name, index: len(c.set.domains), allOrNothing: c.opt.AllOrNothing, calendarMonths: c.opt.CalendarMonths, prefix: c.hasher,
	}
	d.prefix.AddBytesAt(domainPart, []byte(name))
	all := configs[0].Descriptors
	for _, cfg := range configs[1:] {
		all = slices.Concat(all, cfg.Descriptors)
	}
	c.set.domains[name] = d
	c.counters = map[string]*sharedCounter{}
	allOrNothing := c.allOrNothing(d, configs)
	d.allOrNothing = d.allOrNothing || allOrNothing
	c.maxCounters(d, configs)
	c.deniedResponse(d, configs)
	c.compileExemptions(d, configs)
	before := len(c.set.Limits)
	below := c.level(d, &d.root, make([]rules.Level, 0, 8), all)
	c.resolveReplacements(d, c.set.Limits[before:])
	return c.sha.domain(d, allOrNothing, below)
}

// allOrNothing returns the domain's all_or_nothing: true if any configuration sets it, and the
// defaults' if none has the field.
func (c *compiler) allOrNothing(d *domain, configs []*rules.Config) bool {
	set := false
	value := false
	for _, cfg := range configs {
		set = set || cfg.AllOrNothing != nil
		value = value || rules.ValueOr(cfg.AllOrNothing, false)
	}
	for _, dd := range c.opt.Defaults.ForDomain(d.name) {
		if !set && dd.AllOrNothing != nil {
			set = true
			value = *dd.AllOrNothing
		}
	}
	return value
}

// maxCounters sets the domain's max_counters. If files differ the smallest applies, so no file gets
// more than it asks for.
func (c *compiler) maxCounters(d *domain, configs []*rules.Config) {
	var smallest *rules.Config
	differ := false
	for _, cfg := range configs {
		if cfg.MaxCounters == 0 {
			continue
		}
		differ = differ || smallest != nil && cfg.MaxCounters != smallest.MaxCounters
		if smallest == nil || cfg.MaxCounters < smallest.MaxCounters {
			smallest = cfg
		}
	}
	if smallest == nil {
		for _, dd := range c.opt.Defaults.ForDomain(d.name) {
			if d.maxCounters == 0 {
				d.maxCounters = dd.MaxCounters
			}
		}
		return
	}
	d.maxCounters = smallest.MaxCounters
	d.maxCountersAt = smallest.Pos
	if differ {
		c.warn(rules.Differ, smallest.Pos, rules.DomainPath(d.name),
			"the files of this domain differ in max_counters; the smallest, %d, applies", d.maxCounters)
	}
}

// level compiles the descriptors below parent. path is that of parent in the rules, without
// defaults.
func (c *compiler) level(d *domain, parent *node, path []rules.Level, configs []rules.Descriptor) digest {
	if len(configs) == 0 || c.found.Full() {
		return digest{}
	}
	var digests levelDigests
	var sets map[int]*rules.ValueSet // by index in children
	depth := len(path)
	children := make([]node, len(configs))
	for i := range configs {
		from := &configs[i]
		n := &children[i]
		path = append(path[:depth], from.Level())
		cfg, by := c.withDefaults(d, path, from)
		*n = node{
			parent: parent, key: cfg.Key, value: cfg.Value,
			share: cfg.ShareThreshold, valueToMetric: cfg.ValueToMetric, pos: cfg.Pos,
		}
		if cfg.Set != nil {
			if sets == nil {
				sets = map[int]*rules.ValueSet{}
			}
			sets[i] = cfg.Set
			n.set = newValueSet(cfg.Set)
			n.set.distinguish(n.key, children[:i])
		}
		if c.found.Full() {
			return digest{} // the rules have errors, so there is no hash
		}
		c.checkDescriptor(d, n)
		if cfg.FirstWithRoom {
			c.checkChoice(d, n, cfg)
		}
		var below digest
		nestedFirst := precedesLimits(cfg) // limits are numbered in the order of the file
		if nestedFirst {
			below = c.level(d, n, path, cfg.Descriptors)
		}
		if len(cfg.RateLimits) > 0 {
			c.rule(d, n, cfg, from, by)
		}
		if !nestedFirst {
			below = c.level(d, n, path, cfg.Descriptors)
		}
		digests.add(n, c.sha.descriptor(n, cfg.Set, below))
		if c.opt.clearConfigs {
			*from = rules.Descriptor{}
		}
	}
	parent.below = newLevel(children, sets, func(pos rules.Pos, n, first *node, what string) {
		by := ""
		if first.rule != nil {
			by = defaultsText(first.rule.optionalOrZero().defaults)
		}
		c.fail(pos, nodePath(d, n), "duplicate %s on this level; first at %s%s", what, first.pos, by)
	})
	c.warnHidden(d, parent.below)
	c.warnUnreachable(d, parent.below)
	return c.sha.level(&digests)
}

// precedesLimits reports whether the nested descriptors of cfg stand before its limits.
func precedesLimits(cfg *rules.Descriptor) bool {
	if len(cfg.RateLimits) == 0 || len(cfg.Descriptors) == 0 {
		return false
	}
	limit := cfg.RateLimits[0].Pos
	nested := cfg.Descriptors[0].Pos
	return limit.File == nested.File &&
		cmp.Or(cmp.Compare(nested.Line, limit.Line), cmp.Compare(nested.Col, limit.Col)) < 0
}

// pathText returns a path as in [Rule.Path].
func pathText(lineage []*node) string {
	var b strings.Builder
	for i, n := range lineage {
		if i > 0 {
			b.WriteString(" > ")
		}
		b.WriteString(n.text())
	}
	return b.String()
}

func (n *node) text() string { return n.level().String() }

func (n *node) level() rules.Level { return rules.Level{Key: n.key, Value: n.valueText()} }

// valueText returns the value, or the text of the set of values.
func (n *node) valueText() string {
	if n.set != nil {
		return n.set.text
	}
	return n.value
}
