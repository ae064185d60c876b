package descriptors

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Compile turns configurations into a set of rules, in the order given. It checks what
// only several descriptors or configurations show together, and what holds for every
// source. The set is nil if a diagnostic is an error. With warnings alone it is usable.
func Compile(configs []rules.Config, opt Options) (*Set, rules.Diagnostics) {
	c := &compiler{
		opt: opt, set: &Set{domains: map[string]*domain{}}, hasher: opt.HashKey.Hasher(), sha: hasher{state: sha256.New()},
		terms: map[Terms]*Terms{},
	}
	c.makeRoom(configs)
	c.takeAllowances(configs)
	byName := map[string][]*rules.Config{}
	for i := range configs {
		cfg := &configs[i]
		first, twice := byName[cfg.Domain]
		switch {
		case cfg.Domain == "":
			c.fail(cfg.Pos, "", "the domain is empty; every configuration must name its domain")
			continue
		case twice && !opt.MergeDomains:
			c.fail(cfg.Pos, rules.DomainPath(cfg.Domain), "the domain is defined twice, first at %s; merging domains is off", first[0].Pos)
			continue
		case !twice:
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
	c.finishDefaults()
	if c.diagnostics.HasErrors() {
		return nil, c.diagnostics
	}
	if opt.RatelimitNames {
		c.set.nameAsRatelimit()
	}
	return c.set, c.diagnostics
}

// Build compiles what a source has read, and adds what [Compile] finds to what reading
// found. If reading found an error, some configurations are missing. The others are
// compiled all the same, so that one round shows all errors, but without Compile's
// warnings, which may be about what is missing. The diagnostics are in the order of
// files, by the order in names if it has them, else by name. Build uses up the configs.
func Build(configs []rules.Config, found rules.Diagnostics, names []string, opt Options) (*Set, rules.Diagnostics) {
	incomplete := found.HasErrors()
	opt.usesUp = true
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

// compiler is the state of one Compile.
type compiler struct {
	opt         Options
	set         *Set
	diagnostics rules.Diagnostics
	hasher      identity.Hasher // without any item
	sha         hasher
	// replacing is what the limits of the current domain replace.
	replacing []replacing
	uses      map[*rules.DefaultItem]*entryUse
	// terms are those of all limits so far.
	terms map[Terms]*Terms
	// rules and limits have room for those still to come. Each in a piece of memory of
	// its own would take more.
	rules  []Rule
	limits []Limit
}

// makeRoom counts the rules and limits of configs, and makes room for them.
func (c *compiler) makeRoom(configs []rules.Config) {
	nRules, nLimits := 0, 0
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
	c.rules, c.limits, c.set.Limits = make([]Rule, nRules), make([]Limit, nLimits), make([]*Limit, 0, nLimits)
}

// takeAllowances collects what all files acknowledge.
func (c *compiler) takeAllowances(configs []rules.Config) {
	c.set.allowances = rules.Allowances{}
	for i := range configs {
		maps.Copy(c.set.allowances, configs[i].Allowances)
	}
	if c.opt.Defaults != nil {
		maps.Copy(c.set.allowances, c.opt.Defaults.Allowances)
	}
}

// take returns the first element of *room, which it takes off.
func take[T any](room *[]T) *T {
	first := &(*room)[0]
	*room = (*room)[1:]
	return first
}

// shared returns the terms that all limits share which grant t.
func (c *compiler) shared(t Terms) *Terms {
	same := c.terms[t]
	if same == nil {
		same = new(t)
		same.Policy.Prepare()
		c.terms[t] = same
	}
	return same
}

func (c *compiler) fail(pos rules.Pos, path, format string, args ...any) {
	c.diagnostics = append(c.diagnostics, rules.Diagnostic{Pos: pos, Severity: rules.Error, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) warn(code rules.Code, pos rules.Pos, path, format string, args ...any) {
	if !c.set.allowances.Allow(code, pos) {
		c.diagnostics = append(c.diagnostics, rules.Diagnostic{Pos: pos, Severity: rules.Warning, Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// domain compiles the configurations of one domain.
func (c *compiler) domain(name string, configs []*rules.Config) digest {
	d := &domain{name: name, index: len(c.set.domains), allOrNothing: c.opt.AllOrNothing, prefix: c.hasher}
	d.prefix.BytesAt(domainPlace, []byte(name))
	all := configs[0].Descriptors
	for _, cfg := range configs[1:] {
		all = slices.Concat(all, cfg.Descriptors)
	}
	c.set.domains[name] = d
	allOrNothing := c.allOrNothing(d, configs)
	d.allOrNothing = d.allOrNothing || allOrNothing
	c.maxCounters(d, configs)
	before := len(c.set.Limits)
	below := c.level(d, &d.root, all)
	c.resolve(d, c.set.Limits[before:])
	return c.sha.domain(d, allOrNothing, below)
}

// allOrNothing returns the domain's all_or_nothing. If configurations differ, true holds.
// If none has the word, the defaults have it.
func (c *compiler) allOrNothing(d *domain, configs []*rules.Config) bool {
	said, value := false, false
	for _, cfg := range configs {
		said = said || cfg.AllOrNothing != nil
		value = value || rules.Given(cfg.AllOrNothing, false)
	}
	for _, dd := range c.opt.Defaults.Of(d.name) {
		if !said && dd.AllOrNothing != nil {
			said, value = true, *dd.AllOrNothing
		}
	}
	return value
}

// maxCounters sets the domain's bound. Of several the smallest holds, since no file asks
// for more than its own.
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
		for _, dd := range c.opt.Defaults.Of(d.name) {
			if d.maxCounters == 0 {
				d.maxCounters = dd.MaxCounters
			}
		}
		return
	}
	d.maxCounters, d.maxCountersAt = smallest.MaxCounters, smallest.Pos
	if differ {
		c.warn(rules.Differ, smallest.Pos, rules.DomainPath(d.name), "the files of this domain differ in max_counters; the smallest, %d, holds", d.maxCounters)
	}
}

// level compiles the descriptors below parent.
func (c *compiler) level(d *domain, parent *node, configs []rules.Descriptor) digest {
	if len(configs) == 0 {
		return digest{}
	}
	var digests levelDigests
	children := make([]node, len(configs))
	for i := range configs {
		from, n := &configs[i], &children[i]
		cfg := from
		*n = node{
			parent: parent, key: cfg.Key, value: cfg.Value,
			share: cfg.ShareThreshold, valueToMetric: cfg.ValueToMetric, pos: cfg.Pos,
		}
		c.checkDescriptor(d, n)
		if len(cfg.RateLimits) > 0 {
			cfg = c.rule(d, n, cfg)
		}
		digests.add(n, c.sha.descriptor(cfg, c.level(d, n, cfg.Descriptors)))
		if c.opt.usesUp {
			*from = rules.Descriptor{}
		}
	}
	parent.below = newLevel(children, func(n, first *node) {
		c.fail(n.pos, nodePath(d, n), "the same key and value stand twice on this level, first at %s", first.pos)
	})
	return c.sha.level(&digests)
}

// rule compiles the limits of a descriptor. It returns cfg with the words that the
// descriptor has from defaults.
func (c *compiler) rule(d *domain, n *node, cfg *rules.Descriptor) *rules.Descriptor {
	cfg, defaults := c.withDefaults(d, n, cfg)
	lineage := n.lineage()
	r := take(&c.rules)
	*r = Rule{
		domain: d, node: n,
		Unlimited: cfg.RateLimits[0].Unlimited, Shadow: cfg.ShadowMode, Quota: cfg.QuotaMode,
	}
	shared := sharedPatterns(lineage)
	if cfg.Metadata != nil || shared != nil {
		r.rare = &rareWords{metadata: cfg.Metadata, shared: shared}
	}
	switch {
	case r.Shadow:
		r.mode = limiter.Shadow
	case r.Quota:
		r.mode = limiter.Quota
	}
	r.identity = newIdentity(d, lineage, shared)
	r.compileMetric(lineage, cfg.DetailedMetric)
	c.checkLimits(d, n, cfg)
	before := len(c.set.Limits)
	inForce := c.limitsOf(r, cfg, defaults, false, rules.InForce(cfg.RateLimits))
	if candidates := c.limitsOf(r, cfg, defaults, true, len(inForce)); len(candidates) > 0 {
		r.setRare().candidates = candidates
	}
	r.Limits = inForce
	if cfg.List {
		label(c.set.Limits[before:])
	}
	n.rule = r
	c.names(d, r, cfg)
	return cfg
}

// limitsOf compiles the limits of a rule that are in force, so many of them, or its
// candidates. A candidate counts denied hits as if it were one of those in force.
func (c *compiler) limitsOf(r *Rule, cfg *rules.Descriptor, defaults *rules.DefaultItem, candidates bool, inForce int) []*Limit {
	before := len(c.set.Limits)
	for i := range cfg.RateLimits {
		b := &cfg.RateLimits[i]
		if b.Shadow != candidates {
			continue
		}
		t := Terms{
			RequestsPerUnit: b.RequestsPerUnit, Unit: b.Unit, UnitMultiplier: max(1, b.UnitMultiplier), Candidate: b.Shadow,
		}
		if !b.Unlimited {
			t.Policy = b.Policy()
			t.Policy.CountRefused = rules.Given(b.CountRefused, r.domain.countsRefused(t.Policy.Algorithm, inForce))
			t.Policy.CountImplied = t.Policy.CountRefused && b.CountRefused == nil
			t.counter = rules.CounterWord(&t.Policy, b.Shadow)
		}
		l := take(&c.limits)
		*l = Limit{
			Terms: c.shared(t), Name: b.Name, Rule: r, Pos: b.Pos, Defaults: defaults,
			Index: int32(len(c.set.Limits)), //nolint:gosec // fewer than 2^31 limits fit in memory
		}
		c.set.Limits = append(c.set.Limits, l)
	}
	return slices.Clip(c.set.Limits[before:])
}

// countsRefused returns the default of count_refused, the word for counting denied hits,
// for a descriptor with that many limits.
func (d *domain) countsRefused(a limiter.Algorithm, limits int) bool {
	return a == limiter.FixedWindow && limits == 1 && !d.allOrNothing
}

// sharedPatterns returns what stands in rareWords.shared.
func sharedPatterns(lineage []*node) [][]byte {
	var shared [][]byte
	for i, n := range lineage {
		if !n.share || !isWildcard(n.key) && !isWildcard(n.value) {
			continue
		}
		if shared == nil {
			shared = make([][]byte, len(lineage))
		}
		shared[i] = []byte(n.value)
		if n.value == "" {
			shared[i] = []byte("*") // a key with a `*`: any value fits
		}
	}
	return shared
}

// label gives each limit of a list a label of its own for metrics: its name, else its
// rate. Equal names get the rate behind them, equal rates the algorithm.
func label(limits []*Limit) {
	for _, l := range limits {
		l.Label = l.Name
		if l.Name == "" {
			l.Label = rate(l)
		}
		if l.Candidate {
			l.Label += " shadow"
		}
	}
	tellApart(limits, func(l *Limit) string {
		if l.Name == "" {
			return ""
		}
		return " " + rate(l)
	})
	tellApart(limits, func(l *Limit) string { return " " + rules.AlgorithmName(l.Policy.Algorithm) })
	for i, l := range limits {
		if slices.ContainsFunc(limits[:i], func(other *Limit) bool { return other.Label == l.Label }) {
			l.Label += " #" + strconv.Itoa(i+1)
		}
	}
}

// tellApart adds what more returns to equal labels if it differs between them.
func tellApart(limits []*Limit, more func(l *Limit) string) {
	first, differ := map[string]string{}, map[string]bool{}
	for _, l := range limits {
		if text, ok := first[l.Label]; !ok {
			first[l.Label] = more(l)
		} else if text != more(l) {
			differ[l.Label] = true
		}
	}
	for _, l := range limits {
		if differ[l.Label] {
			l.Label += more(l)
		}
	}
}

// rate returns a limit as 60/minute or 60/10minute.
func rate(l *Limit) string {
	b := strconv.AppendUint(nil, uint64(l.RequestsPerUnit), 10)
	b = append(b, '/')
	if l.UnitMultiplier > 1 {
		b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
	}
	return string(append(b, l.Unit.String()...))
}

// pathText returns the place in the tree as [Rule.Path] has it.
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

// text returns a node as key or key=value.
func (n *node) text() string { return n.level().String() }

func (n *node) level() rules.Level { return rules.Level{Key: n.key, Value: n.value} }
