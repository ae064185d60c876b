package rulefile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

const (
	// maxFileBytes bounds the size of one file; a node takes some ten times its text.
	maxFileBytes = 16 << 20
	// maxNodes bounds the nodes that one file may expand to through aliases.
	maxNodes = 2_000_000
	// maxDepth bounds how deep maps and lists may nest.
	maxDepth = 100
	// maxDiagnostics bounds the errors that one file reports, and its warnings.
	maxDiagnostics = 100
)

// Parse reads the rules in content, one [rules.Config] per YAML document. File is the
// name that diagnostics print.
//
// It checks each document by itself and reports every finding, in the order of lines. If
// one is an error, it returns no Configs. descriptors.Compile checks what only several
// nodes or documents show together, such as duplicates.
//
// Values are typed as envoyproxy/ratelimit types them (YAML 1.1: `on` and `yes`
// are booleans, `1_000` and `0x10` numbers), so that a file means here what it
// means there.
func Parse(file string, content []byte) ([]rules.Config, rules.Diagnostics) {
	p, configs := parse(file, content, findLongList(content, pieceBytes))
	if l := p.list; l != nil && (l.broken || l.node == nil) {
		p, configs = parse(file, content, nil)
	}
	ds := p.sorted()
	if ds.HasErrors() {
		configs = nil
	}
	return configs, ds
}

// parse reads the rules in content. Its list, if not nil, is read in pieces.
func parse(file string, content []byte, list *longList) (*parser, []rules.Config) {
	p := newParser(file, content)
	p.list = list
	var configs []rules.Config
	p.documents(content, "rules", func(root *yaml.Node) {
		if list != nil {
			list.attach(root)
		}
		configs = append(configs, p.document(root))
		configs[len(configs)-1].Allowances = p.allowances
	})
	return p, configs
}

// parser is the state of reading one file.
type parser struct {
	file string
	// list is read in pieces, nil if none is.
	list *longList
	// allowances are the warnings that the file acknowledges.
	allowances rules.Allowances
	// texts has each key of a descriptor once: a file has few, and many descriptors.
	texts            map[string]string
	diagnostics      rules.Diagnostics
	errors, warnings int
	// seen keeps a mistake in an anchor from being reported at each of its aliases.
	seen         map[finding]bool
	nodes, depth int
	// stopped is set when going on would only waste time. Nothing is reported after.
	stopped bool
}

func newParser(file string, content []byte) *parser {
	return &parser{file: file, allowances: rules.FindAllowances(file, content), seen: map[finding]bool{}, texts: map[string]string{}}
}

// sorted returns the diagnostics in the order of lines.
func (p *parser) sorted() rules.Diagnostics {
	slices.SortStableFunc(p.diagnostics, func(a, b rules.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	return p.diagnostics
}

type finding struct {
	line, col int
	message   string
}

// document reads the root of a document.
func (p *parser) document(n *yaml.Node) rules.Config {
	n = p.follow(n)
	c := rules.Config{Pos: p.pos(n)}
	if n.Kind != yaml.MappingNode {
		p.fail("", n, `the file must be a map with "domain" and "descriptors", not %s`, kindName(n))
		return c
	}
	fields := p.fields("", n, wordText)
	if p.kubernetesObject(fields) {
		return c
	}
	path := documentPath(fields)
	at, ok := n, true
	for _, f := range fields {
		switch f.word {
		case "domain":
			c.Domain, ok = p.text(path, f)
			at = f.value
		case "descriptors":
			c.Descriptors = p.descriptors(path, f)
		case "all_or_nothing":
			c.AllOrNothing = new(p.newBool(path, f))
		case "max_counters":
			most, _ := p.number(path, f, 1, math.MaxUint32)
			c.MaxCounters = int64(most)
		default:
			ok = p.stray(path, rootWords, f) != "domain" && ok
		}
	}
	if ok && c.Domain == "" {
		p.fail("", at, `"domain" is missing or empty; every document of rules names its domain`)
	}
	return c
}

// stray reports a word that is not in a vocabulary. The words of envoyproxy/ratelimit load
// everywhere without effect, as they do there. It returns the word that was likely meant,
// so that this is not reported as missing too.
func (p *parser) stray(path string, v vocabulary, f field) (meant string) {
	home := homes(f.word)
	switch {
	case slices.Contains(referenceWords, f.word):
		p.warn(rules.NoEffect, path, f.key, "%q has no effect %s; it belongs %s", f.word, v.where, placeNames(home))
		p.ignored(path, f)
	case len(home) > 0:
		p.fail(path, f.key, "%q is not allowed %s; it belongs %s", f.word, v.where, placeNames(home))
	default:
		message := fmt.Sprintf("unknown word %q %s", rules.Shorten(f.word), v.where)
		if meant = rules.Suggest(f.word, v.words); meant != "" {
			message += fmt.Sprintf("; did you mean %q?", meant)
		} else if s := rules.Suggest(f.word, knownWords()); s != "" {
			message += fmt.Sprintf("; did you mean %q, which belongs %s?", s, placeNames(homes(s)))
		}
		p.fail(path, f.key, "%s (allowed: %s)", message, strings.Join(v.words, ", "))
	}
	return meant
}

func knownWords() []string {
	var all []string
	for _, v := range vocabularies() {
		all = append(all, v.words...)
	}
	return all
}

func placeNames(vs []vocabulary) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.where
	}
	return strings.Join(names, " or ")
}

// ignored checks what stands below a word without effect, as far as envoyproxy/ratelimit
// does: words must be known, and items of lists must be maps.
func (p *parser) ignored(path string, f field) {
	if f.word == "metadata" || !p.enter(f.value) {
		return
	}
	defer p.leave()
	switch f.value.Kind {
	case yaml.MappingNode:
		p.ignoredMap(path, f.value)
	case yaml.SequenceNode:
		for _, item := range f.value.Content {
			m := p.follow(item)
			if m.Kind != yaml.MappingNode {
				p.fail(path, item, "%q is a list of %s; lists hold maps", f.word, kindName(m))
				continue
			}
			p.ignoredMap(path, m)
		}
	default:
		p.text(path, f)
	}
}

func (p *parser) ignoredMap(path string, m *yaml.Node) {
	if !p.enter(m) {
		return
	}
	defer p.leave()
	for _, f := range p.fields(path, m, wordText) {
		if slices.Contains(referenceWords, f.word) {
			p.ignored(path, f)
			continue
		}
		p.stray(path, vocabulary{"in a part without effect", referenceWords}, f)
	}
}

// follow returns the node that n is an alias of, or n. Every node that is read passes here
// and is counted: otherwise a small file of aliases could expand without bound.
func (p *parser) follow(n *yaml.Node) *yaml.Node {
	p.nodes++
	if p.nodes > maxNodes {
		p.fail("", n, "the file is too large: more than %d nodes, counted through aliases", maxNodes)
		p.stopped = true
	}
	if p.stopped {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// enter begins a map or list and reports whether to go on into it.
func (p *parser) enter(n *yaml.Node) bool {
	if p.depth >= maxDepth {
		p.fail("", n, "maps and lists nest deeper than %d levels, or an alias holds itself", maxDepth)
		p.stopped = true
	}
	if p.stopped {
		return false
	}
	p.depth++
	return true
}

func (p *parser) leave() { p.depth-- }

func (p *parser) pos(n *yaml.Node) rules.Pos {
	return p.at(n.Line, n.Column)
}

func (p *parser) at(line, col int) rules.Pos {
	return rules.Pos{File: p.file, Line: line, Col: col}
}

func (p *parser) fail(path string, n *yaml.Node, format string, args ...any) {
	p.report("", path, n.Line, n.Column, fmt.Sprintf(format, args...))
}

func (p *parser) warn(code rules.Code, path string, n *yaml.Node, format string, args ...any) {
	p.report(code, path, n.Line, n.Column, fmt.Sprintf(format, args...))
}

// report reports an error, or a warning if it has a code.
func (p *parser) report(code rules.Code, path string, line, col int, message string) {
	s := rules.Error
	if code != "" {
		s = rules.Warning
		if p.allowances.Allow(code, p.at(line, col)) {
			return
		}
	}
	key := finding{line, col, message}
	if p.stopped || p.seen[key] {
		return
	}
	count := &p.warnings
	if s == rules.Error {
		count = &p.errors
	}
	*count++
	switch {
	case *count > maxDiagnostics+1:
		return
	case *count == maxDiagnostics+1:
		if path = ""; code != "" {
			code = rules.TooMany
		}
		message = fmt.Sprintf("more than %d %ss; the others are not shown", maxDiagnostics, s)
	}
	p.seen[key] = true
	p.diagnostics = append(p.diagnostics, rules.Diagnostic{
		Pos: p.at(line, col), Severity: s, Code: code, Path: path, Message: message,
	})
	if p.errors > maxDiagnostics {
		p.stopped = true
	}
}
