package rulefile

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/envoygateway"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

const (
	// maxFileBytes bounds the size of one file; a node takes some ten times its text.
	maxFileBytes = 16 << 20
	// maxNodes bounds the nodes that one file may expand to through aliases.
	maxNodes = 2_000_000
	// maxDepth bounds how deep maps and lists may nest.
	maxDepth = 100
	// maxDiagnostics bounds the errors, and the warnings, of one file.
	maxDiagnostics = 100
)

// parser reads one file.
type parser struct {
	file string
	// list is the list that is read in pieces, or nil.
	list *longList
	// allowances are the warnings that the file acknowledges.
	allowances rules.Allowances
	// texts interns the keys of descriptors: a file has few, but many descriptors.
	texts map[string]string
	found rules.Findings
	// failures is the number of errors, including repeated ones of an anchor. omitted is the number
	// of errors for which descriptors were omitted.
	failures, omitted int
	// seen has the reported findings, so that a mistake in an anchor is not reported again for each
	// of its aliases.
	seen         map[finding]bool
	nodes, depth int
	// rangeFiles are the files of ranges that descriptors name.
	rangeFiles []string
	// lines are the lines of a file with embedded texts, once they are needed.
	lines [][]byte
	// objects are the Kubernetes objects of the file.
	objects objects
	// gateway collects the objects from which Envoy Gateway makes rules; if it is nil they are
	// reported as unread.
	gateway *envoygateway.Objects
	// mapPos maps lines and columns of an embedded text to those of the file; nil if the text is
	// not embedded.
	mapPos func(line, col int) (int, int)
	// stopped ends reading. Nothing is reported afterwards.
	stopped bool
}

func newParser(file string, content []byte) *parser {
	return &parser{
		file: file, allowances: rules.FindAllowances(file, content), seen: map[finding]bool{}, texts: map[string]string{},
		found: rules.Findings{Max: maxDiagnostics},
	}
}

// sorted returns the diagnostics in the order of lines.
func (p *parser) sorted() rules.Diagnostics {
	slices.SortStableFunc(p.found.All, func(a, b rules.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	return p.found.All
}

type finding struct {
	line, col int
	message   string
}

// resolveAlias returns the node that n is an alias of, or n. It counts each node that is read,
// since a small file can expand without bound through aliases.
func (p *parser) resolveAlias(n *yaml.Node) *yaml.Node {
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

// enter begins a map or list. It returns false if it must not be read.
func (p *parser) enter(n *yaml.Node) bool {
	if p.depth >= maxDepth {
		p.fail("", n, "maps and lists are nested deeper than %d levels, or an alias contains itself", maxDepth)
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
	if p.mapPos != nil {
		line, col = p.mapPos(line, col)
	}
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
	if s == rules.Error {
		p.failures++
	}
	key := finding{line, col, message}
	if p.stopped || p.seen[key] {
		return
	}
	if p.found.Add(rules.Diagnostic{Pos: p.at(line, col), Severity: s, Code: code, Path: path, Message: message}) {
		p.seen[key] = true
	}
	p.stopped = p.found.Full()
}

// note adds a note, which does not report a mistake.
func (p *parser) note(n *yaml.Node, message string) {
	p.found.Add(rules.Diagnostic{Pos: p.pos(n), Severity: rules.Note, Message: message})
}
