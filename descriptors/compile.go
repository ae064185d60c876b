package descriptors

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Compile turns configurations into a set of rules, in the order given. It checks
// what several nodes or configurations show together, and what every source must
// keep to. The set is nil if any of the diagnostics is an error, and else usable
// whatever warnings there are.
func Compile(configs []Config, opt Options) (*Set, Diagnostics) {
	c := &compiler{opt: opt, set: &Set{Hash: fingerprint(configs), domains: map[string]*domain{}}}
	byName := map[string][]*Config{}
	for i := range configs {
		cfg := &configs[i]
		first, twice := byName[cfg.Domain]
		switch {
		case cfg.Domain == "":
			c.fail(cfg.Pos, "", "the domain is empty; every configuration must name its domain")
			continue
		case twice && !opt.MergeDomains:
			c.fail(cfg.Pos, domainPath(cfg.Domain), "the domain is defined twice, first at %s; merging domains is off", first[0].Pos)
			continue
		case !twice:
			c.set.names = append(c.set.names, cfg.Domain)
		}
		byName[cfg.Domain] = append(first, cfg)
	}
	slices.Sort(c.set.names)
	for _, name := range c.set.names {
		c.domain(name, byName[name])
	}
	if c.diagnostics.HasErrors() {
		return nil, c.diagnostics
	}
	return c.set, c.diagnostics
}

// compiler is the state of one Compile.
type compiler struct {
	opt         Options
	set         *Set
	diagnostics Diagnostics
	// replacing is what the limits of the current domain replace.
	replacing []replacing
}

func (c *compiler) fail(pos Pos, path, format string, args ...any) {
	c.diagnostics = append(c.diagnostics, Diagnostic{pos, Error, path, fmt.Sprintf(format, args...)})
}

func (c *compiler) warn(pos Pos, path, format string, args ...any) {
	c.diagnostics = append(c.diagnostics, Diagnostic{pos, Warning, path, fmt.Sprintf(format, args...)})
}

// domain compiles the configurations of one domain.
func (c *compiler) domain(name string, configs []*Config) {
	d := &domain{name: name, allOrNothing: c.opt.AllOrNothing, prefix: c.opt.HashKey.Hasher()}
	d.prefix.Bytes([]byte(name))
	all := configs[0].Descriptors
	for i, cfg := range configs {
		d.allOrNothing = d.allOrNothing || cfg.AllOrNothing
		if i > 0 {
			all = slices.Concat(all, cfg.Descriptors)
		}
	}
	c.set.domains[name] = d
	before := len(c.set.Limits)
	c.level(d, &d.root, all)
	c.resolve(d, c.set.Limits[before:])
}

// level compiles the descriptors below parent.
func (c *compiler) level(d *domain, parent *node, configs []DescriptorConfig) {
	if len(configs) == 0 {
		return
	}
	type text struct{ key, value string }
	first := make(map[text]*node, len(configs))
	parent.children = make([]node, len(configs))
	for i := range configs {
		cfg, n := &configs[i], &parent.children[i]
		*n = node{
			parent: parent, key: cfg.Key, value: cfg.Value,
			share: cfg.ShareThreshold, valueToMetric: cfg.ValueToMetric, pos: cfg.Pos,
		}
		c.checkDescriptor(d, n)
		at := text{n.key, n.value}
		if f := first[at]; f != nil {
			c.fail(n.pos, nodePath(d, n), "the same key and value stand twice on this level, first at %s", f.pos)
		} else {
			first[at] = n
		}
		if len(cfg.RateLimits) > 0 {
			c.rule(d, n, cfg)
		}
		c.level(d, n, cfg.Descriptors)
	}
	parent.below = newLevel(parent.children)
}

// rule compiles the limits of a descriptor.
func (c *compiler) rule(d *domain, n *node, cfg *DescriptorConfig) {
	lineage := n.lineage()
	r := &Rule{
		Domain: d.name, Path: pathText(lineage), Pos: n.pos, node: n,
		Unlimited: cfg.RateLimits[0].Unlimited, Shadow: cfg.ShadowMode, Quota: cfg.QuotaMode,
		Metadata: cfg.Metadata, shared: sharedPatterns(lineage),
	}
	switch {
	case r.Shadow:
		r.mode = limiter.Shadow
	case r.Quota:
		r.mode = limiter.Quota
	}
	r.compileMetric(lineage, cfg.DetailedMetric)
	c.checkLimits(d, n, cfg)
	limits := make([]Limit, len(cfg.RateLimits))
	for i := range limits {
		b, l := &cfg.RateLimits[i], &limits[i]
		*l = Limit{
			RequestsPerUnit: b.RequestsPerUnit, Unit: b.Unit, UnitMultiplier: max(1, b.UnitMultiplier),
			Name: b.Name, Index: len(c.set.Limits), Rule: r, Pos: b.Pos,
		}
		if !b.Unlimited {
			l.Policy = limiter.Policy{
				Algorithm: limiter.FixedWindow, Limit: b.RequestsPerUnit,
				Window:       time.Duration(b.window()) * time.Second,
				CountRefused: d.countsRefused(len(limits)),
			}
			if b.CountRefused != nil {
				l.Policy.CountRefused = *b.CountRefused
			}
			l.counter = counterWord(&l.Policy)
		}
		r.Limits = append(r.Limits, l)
		c.set.Limits = append(c.set.Limits, l)
	}
	if cfg.List {
		label(r.Limits)
	}
	n.rule = r
	c.names(d, r, cfg)
}

// countsRefused is the default of count_refused for a descriptor with that many
// limits.
func (d *domain) countsRefused(limits int) bool { return limits == 1 && !d.allOrNothing }

// sharedPatterns returns [Rule.shared].
func sharedPatterns(lineage []*node) [][]byte {
	var shared [][]byte
	for i, n := range lineage {
		if !n.share || !isWildcard(n.key+n.value) {
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

// label gives the limits of a list names to be told apart by.
func label(limits []*Limit) {
	count := map[string]int{}
	for _, l := range limits {
		l.Label = l.Name
		if l.Name == "" {
			l.Label = rate(l)
		}
		count[l.Label]++
	}
	for i, l := range limits {
		if count[l.Label] > 1 {
			l.Label += " " + rate(l)
		}
		if slices.ContainsFunc(limits[:i], func(other *Limit) bool { return other.Label == l.Label }) {
			l.Label += " #" + strconv.Itoa(i+1)
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

// pathText returns [Rule.Path].
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
func (n *node) text() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "=" + n.value
}
