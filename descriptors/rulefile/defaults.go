package rulefile

import (
	"math"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// ParseDefaults reads a file of defaults: fields for rules that lack them, such as all rules from
// xDS. file is the name in diagnostics.
//
//	domain: "*"              # every domain, or one; one document for each
//	all_or_nothing: true
//	max_counters: 100000
//	exempt: [{key: remote_address, cidr: [10.0.0.0/8]}]
//	defaults:
//	  - name: per-user       # rules whose rate_limit has this name
//	    rate_limit: {algorithm: token_bucket, burst: 20}
//	  - path: [{key: remote_address}, {key: path, value: /search}]
//	    rate_limit: {algorithm: sliding_window}
//	  - path: [{key: user}]
//	    rate_limit: {algorithm: concurrency, name: streams}    # the name of a rule that has none
//	  - rate_limit: {algorithm: sliding_window}    # all others
//
// It reports all findings, in the order of lines. If one is an error, it returns nil Defaults.
// descriptors.Compile checks the fields together with each rule.
func ParseDefaults(file string, content []byte) (*rules.Defaults, rules.Diagnostics) {
	p, d := parseDefaults(file, content)
	ds := p.sorted()
	if ds.HasErrors() {
		return nil, ds
	}
	return d, ds
}

// DefaultsRangeFiles is [RangeFiles] for a file of defaults.
func DefaultsRangeFiles(file string, content []byte) []string {
	p, _ := parseDefaults(file, content)
	return p.rangeFiles
}

func parseDefaults(file string, content []byte) (*parser, *rules.Defaults) {
	p := newParser(file, content)
	d := &rules.Defaults{Allowances: p.allowances}
	p.documents(content, "defaults", func(root *yaml.Node) { p.defaultsDocument(d, root) })
	return p, d
}

// defaultsDocument reads a document of defaults into d.
func (p *parser) defaultsDocument(d *rules.Defaults, n *yaml.Node) {
	n = p.resolveAlias(n)
	if n.Kind != yaml.MappingNode {
		p.fail("", n, `the file must be a map with "domain" and "defaults", not %s`, kindName(n))
		return
	}
	dd := &rules.DomainDefaults{Pos: p.pos(n)}
	fields := p.fields("", n, fieldName)
	if p.kubernetesObject(n) {
		return
	}
	path := documentPath(fields)
	at := n
	ok := true
	for _, f := range fields {
		switch f.name {
		case "domain":
			dd.Domain, ok = p.text(path, f)
			at = f.value
		case "all_or_nothing":
			dd.AllOrNothing = new(p.strictBool(path, f))
		case "max_counters":
			maxCounters, _ := p.number(path, f, 1, math.MaxUint32)
			dd.MaxCounters = int64(maxCounters)
		case "denied_response":
			dd.Denied = p.deniedResponse(path, f)
		case "exempt":
			dd.Exempt = p.exemptions(path, f)
		case "defaults":
			p.defaultItems(path, f, dd)
		default:
			ok = p.reportUnknownField(path, defaultsRootFields, f) != "domain" && ok
		}
	}
	switch {
	case !ok:
	case dd.Domain == "":
		p.fail("", at, `"domain" is missing or empty; every document of defaults names its domain, or "*" for all`)
	default:
		if first := d.Add(dd); first != nil {
			p.fail(path, at, "duplicate defaults for this domain, first on line %d; merge the two", first.Pos.Line)
		}
	}
}

func (p *parser) defaultItems(path string, f field, dd *rules.DomainDefaults) {
	if isNull(f.value) {
		return
	}
	p.eachMap(path, f, "a list of maps", `an item of defaults must be a map with "rate_limit"`, func(
		here string, at, m *yaml.Node,
	) {
		if !p.enter(m) {
			return
		}
		defer p.leave()
		e := p.defaultItem(here, at, m)
		if e == nil {
			return
		}
		if first := dd.Add(e); first != nil {
			p.fail(here, at, "duplicate item for these rules, first on line %d; only one can apply", first.Pos.Line)
		}
	})
}

// defaultItem reads an item of defaults. It returns nil if it reported an error.
func (p *parser) defaultItem(path string, item, m *yaml.Node) *rules.DefaultItem {
	failures := p.failures
	e := &rules.DefaultItem{Pos: p.pos(item), At: path, Limit: rules.Limit{UnitMultiplier: 1}}
	given := map[string]field{}
	fields := p.fields(path, m, fieldName)
	var selection rules.Descriptor
	for _, f := range fields {
		given[f.name] = f
		switch f.name {
		case "name":
			var ok bool
			if e.Name, ok = p.text(path, f); ok && e.Name == "" {
				p.fail(path, f.value, `"name" is empty; set the name of the rules, or remove it for all rules`)
			}
		case "path":
			e.Path = p.defaultPath(path, f)
		case "rate_limit":
			p.defaultLimit(path+" > rate_limit", f, e)
		case "denied_response":
			e.Denied = p.deniedResponse(path, f)
		case "detailed_metric":
			e.DetailedMetric = new(p.strictBool(path, f))
		case "shadow_mode":
			e.ShadowMode = new(p.strictBool(path, f))
		case "values", "cidr", "prefix":
			p.valueSet(path, f, &selection)
		default:
			given[p.reportUnknownField(path, defaultItemFields, f)] = f
		}
	}
	sets := func(field string) bool { _, ok := given[field]; return ok }
	if !slices.ContainsFunc(defaultItemFields.names[2:], sets) {
		p.fail(path, item, `"rate_limit" is missing; it has the fields to set`)
	}
	if f, ok := given["path"]; ok && e.Name != "" {
		p.fail(path, f.key, `"path" and "name" exclude each other; a path selects a single rule`)
	}
	if _, ok := given["path"]; !ok && e.Limit.Name != "" {
		p.fail(path, item, `"name" in rate_limit is for one rule, so the item needs a "path"`)
	}
	p.checkValueSet(path, fields, &selection)
	e.Set = selection.Set
	if (e.Set != nil || e.Limit.Unit != 0) && !hasField(fields, "path", "name") {
		p.fail(path, item,
			`"unit", "values", "cidr" and "prefix" are not for all rules, so the item needs a "path" or a "name"`)
	}
	if p.failures > failures {
		return nil
	}
	return e
}

// defaultPath reads the path of a rule.
func (p *parser) defaultPath(path string, f field) []rules.Level {
	list := `a list of maps with "key" and "value", one for each level down to the rule`
	if f.value.Kind == yaml.SequenceNode && len(f.value.Content) == 0 {
		p.fail(rules.Below(path, f.name), f.value, "%q must be %s, not an empty one", f.name, list)
		return nil
	}
	var levels []rules.Level
	p.eachMap(path, f, list, `an item of path must be a map with "key"`, func(here string, at, m *yaml.Node) {
		var level rules.Level
		ok := true
		for _, g := range p.fields(here, m, fieldName) {
			switch g.name {
			case "key":
				level.Key, ok = p.text(here, g)
			case "value":
				level.Value, _ = p.text(here, g)
			default:
				ok = p.reportUnknownField(here, defaultPathFields, g) != "key" && ok
			}
		}
		if ok && level.Key == "" {
			p.fail(here, at, `"key" is missing or empty; every level needs one`)
		}
		levels = append(levels, level)
	})
	return levels
}

func (p *parser) defaultLimit(path string, f field, e *rules.DefaultItem) {
	fields, ok := p.mapFields(path, f, "{ algorithm: sliding_window }")
	if !ok {
		return
	}
	b := &limitBlock{path: path, node: f.at, given: map[string]field{}, config: rules.Limit{UnitMultiplier: 1}}
	for _, g := range fields {
		b.given[g.name] = g
		switch g.name {
		case "name":
			b.config.Name = p.limitName(path, g)
			continue
		case "unit":
			var ok bool
			if b.unit, ok = p.text(path, g); !ok {
				continue
			}
			if b.config.Unit, ok = rules.UnitNamed(b.unit); !ok {
				p.reportUnknownUnit(b)
			}
			continue
		}
		if p.readDefaultableField(path, g, b) {
			continue
		}
		if meant := p.reportUnknownField(path, defaultLimitFields, g); meant != "" {
			b.suppressed = append(b.suppressed, meant)
		}
	}
	// Which fields exclude each other does not depend on the rule, so it is checked here. The
	// numbers are checked with each rule.
	e.Limit = b.config
	l := b.config
	switch {
	case l.Unit != 0:
	case rules.ValueOr(l.Calendar, false):
		l.Unit = rules.Month // supports all calendar fields
	default:
		l.Unit = rules.Second
	}
	p.checkAlgorithmFields(b, &l)
}
