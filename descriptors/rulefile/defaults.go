package rulefile

import (
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// ParseDefaults reads a file of defaults: words for rules that lack them, as all rules from
// xDS do. File is the name for diagnostics.
//
//	domain: "*"              # of every domain, or of one; a document each
//	all_or_nothing: true
//	max_counters: 100000
//	defaults:
//	  - name: per-user       # rules whose rate_limit has this name
//	    rate_limit: {algorithm: token_bucket, burst: 20}
//	  - path: [{key: remote_address}, {key: path, value: /search}]
//	    rate_limit: {algorithm: sliding_window}
//	  - path: [{key: user}]
//	    rate_limit: {algorithm: concurrency, name: streams}    # the name of a rule that has none
//	  - rate_limit: {algorithm: sliding_window}    # all others
//
// It reports every finding, in the order of lines. If one is an error, the Defaults are
// nil. descriptors.Compile checks the words together with each rule.
func ParseDefaults(file string, content []byte) (*rules.Defaults, rules.Diagnostics) {
	p := newParser(file, content)
	d := &rules.Defaults{Allowances: p.allowances}
	p.documents(content, "defaults", func(root *yaml.Node) { p.defaultsDocument(d, root) })
	ds := p.sorted()
	if ds.HasErrors() {
		return nil, ds
	}
	return d, ds
}

// defaultsDocument reads the root of a document of defaults into d.
func (p *parser) defaultsDocument(d *rules.Defaults, n *yaml.Node) {
	n = p.follow(n)
	if n.Kind != yaml.MappingNode {
		p.fail("", n, `the file must be a map with "domain" and "defaults", not %s`, kindName(n))
		return
	}
	dd := &rules.DomainDefaults{Pos: p.pos(n)}
	fields := p.fields("", n, wordText)
	if p.kubernetesObject(n) {
		return
	}
	path := documentPath(fields)
	at, ok := n, true
	for _, f := range fields {
		switch f.word {
		case "domain":
			dd.Domain, ok = p.text(path, f)
			at = f.value
		case "all_or_nothing":
			dd.AllOrNothing = new(p.newBool(path, f))
		case "max_counters":
			most, _ := p.number(path, f, 1, math.MaxUint32)
			dd.MaxCounters = int64(most)
		case "defaults":
			p.defaultItems(path, f, dd)
		default:
			ok = p.strayDefault(path, defaultsRootWords, f) != "domain" && ok
		}
	}
	switch {
	case !ok:
	case dd.Domain == "":
		p.fail("", at, `"domain" is missing or empty; every document of defaults names its domain, or "*" for all`)
	default:
		if first := d.Add(dd); first != nil {
			p.fail(path, at, "the domain has two documents of defaults, the first on line %d; write one", first.Pos.Line)
		}
	}
}

// strayDefault reports a word that means nothing in a vocabulary of defaults. It
// returns the word of it that was likely meant, so that it is not reported as
// missing too.
func (p *parser) strayDefault(path string, v vocabulary, f field) (meant string) {
	message := fmt.Sprintf("unknown word %q %s", rules.Shorten(f.word), v.where)
	if len(homes(f.word)) > 0 {
		message = fmt.Sprintf("%q is for rules and not allowed %s", f.word, v.where)
	} else if meant = rules.Suggest(f.word, v.words); meant != "" {
		message += fmt.Sprintf("; did you mean %q?", meant)
	}
	p.fail(path, f.key, "%s (allowed: %s)", message, strings.Join(v.words, ", "))
	return meant
}

func (p *parser) defaultItems(path string, f field, dd *rules.DomainDefaults) {
	if isNull(f.value) {
		return
	}
	p.maps(path, f, "a list of maps", `an item of defaults must be a map with "rate_limit"`, func(here string, at, m *yaml.Node) {
		if !p.enter(m) {
			return
		}
		defer p.leave()
		e := p.defaultItem(here, at, m)
		if e == nil {
			return
		}
		if first := dd.Add(e); first != nil {
			p.fail(here, at, "these rules have an item already, on line %d; only one can hold", first.Pos.Line)
		}
	})
}

// defaultItem reads an item of defaults. It returns nil if it reported an error.
func (p *parser) defaultItem(path string, item, m *yaml.Node) *rules.DefaultItem {
	errors := p.errors
	e := &rules.DefaultItem{Pos: p.pos(item), At: path}
	given := map[string]field{}
	for _, f := range p.fields(path, m, wordText) {
		given[f.word] = f
		switch f.word {
		case "name":
			var ok bool
			if e.Name, ok = p.text(path, f); ok && e.Name == "" {
				p.fail(path, f.value, `"name" is empty; it is that of the rules, or leave it out for all`)
			}
		case "path":
			e.Path = p.defaultPath(path, f)
		case "rate_limit":
			p.defaultWords(path+" > rate_limit", f, e)
		default:
			given[p.strayDefault(path, defaultWords, f)] = f
		}
	}
	if _, ok := given["rate_limit"]; !ok {
		p.fail(path, item, `"rate_limit" is missing; it holds the words that the rules get`)
	}
	if f, ok := given["path"]; ok && e.Name != "" {
		p.fail(path, f.key, `"path" and "name" exclude each other; a path is that of one rule`)
	}
	if _, ok := given["path"]; !ok && e.Limit.Name != "" {
		p.fail(path, item, `a "name" in rate_limit is for one rule, so that the item needs its "path"`)
	}
	if p.errors > errors {
		return nil
	}
	return e
}

// defaultPath reads the key and value of each level down to a rule.
func (p *parser) defaultPath(path string, f field) []rules.Level {
	list := `a list of maps with "key" and "value", one for each level down to the rule`
	if f.value.Kind == yaml.SequenceNode && len(f.value.Content) == 0 {
		p.fail(rules.Below(path, f.word), f.value, "%q must be %s, not an empty one", f.word, list)
		return nil
	}
	var levels []rules.Level
	p.maps(path, f, list, `an item of path must be a map with "key"`, func(here string, at, m *yaml.Node) {
		var level rules.Level
		ok := true
		for _, g := range p.fields(here, m, wordText) {
			switch g.word {
			case "key":
				level.Key, ok = p.text(here, g)
			case "value":
				level.Value, _ = p.text(here, g)
			default:
				ok = p.strayDefault(here, defaultPathWords, g) != "key" && ok
			}
		}
		if ok && level.Key == "" {
			p.fail(here, at, `"key" is missing or empty; every level needs one`)
		}
		levels = append(levels, level)
	})
	return levels
}

func (p *parser) defaultWords(path string, f field, e *rules.DefaultItem) {
	if f.value.Kind != yaml.MappingNode || len(f.value.Content) == 0 {
		got := kindName(f.value)
		if f.value.Kind == yaml.MappingNode {
			got = "an empty one"
		}
		p.fail(path, f.value, "a rate_limit of defaults must be a map with at least one of %s, not %s", strings.Join(defaultLimitWords.words, ", "), got)
		return
	}
	b := &limitBlock{path: path, node: f.at, given: map[string]field{}, config: rules.Limit{UnitMultiplier: 1}}
	for _, g := range p.fields(path, f.value, wordText) {
		b.given[g.word] = g
		if g.word == "name" {
			b.config.Name = p.limitName(path, g)
			continue
		}
		if p.newWord(path, g, b) {
			continue
		}
		if meant := p.strayDefault(path, defaultLimitWords, g); meant != "" {
			b.misspelt = append(b.misspelt, meant)
		}
	}
	// Which words fit together does not depend on the rule, so it is checked here. Which
	// numbers do is checked with each rule.
	e.Limit = b.config
	if e.Limit.Unit = rules.Second; rules.Given(e.Limit.Calendar, false) {
		e.Limit.Unit = rules.Month // which can have all words of a calendar
	}
	p.algorithmWords(b, &e.Limit)
}
