package rulefile

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// embedded reads the rules in a value of a ConfigMap. content is the file, to which places in
// diagnostics refer.
func (p *parser) embedded(content []byte, text *yaml.Node) []rules.Config {
	inner := newParser(p.file, []byte(text.Value))
	inner.mapPos = p.placesOf(content, text)
	inner.allowances = inner.allowances.Moved(func(at rules.Pos) rules.Pos { return inner.at(at.Line, at.Col) })
	inner.nodes = p.nodes // bounds the nodes and the findings of all files of the object together
	inner.found = p.found
	configs := inner.read([]byte(text.Value), nil)
	p.nodes = inner.nodes
	p.found = inner.found
	p.rangeFiles = append(p.rangeFiles, inner.rangeFiles...)
	return configs
}

// placesOf returns a function that maps lines and columns of a scalar's text to those of the file.
// If it is not a block, so that its lines are not lines of the file, it maps all to the start of the scalar.
func (p *parser) placesOf(content []byte, scalar *yaml.Node) func(line, col int) (int, int) {
	if scalar.Style&yaml.LiteralStyle != 0 {
		if p.lines == nil { // an object may have many texts
			p.lines = bytes.Split(content, []byte("\n"))
		}
		if indent, ok := p.indentOf(scalar); ok {
			return func(line, col int) (int, int) { return scalar.Line + line, col + indent }
		}
	}
	return func(int, int) (int, int) { return scalar.Line, scalar.Column }
}

// indentOf returns the indentation of a block scalar. ok is false if its lines are not those of its
// text.
func (p *parser) indentOf(scalar *yaml.Node) (indent int, ok bool) {
	below := p.lines[min(scalar.Line, len(p.lines)):] // YAML has other line breaks, too
	indent = -1
	for line := range strings.Lines(scalar.Value) {
		if len(below) == 0 {
			return 0, false
		}
		line := strings.TrimSuffix(line, "\n")
		raw := strings.TrimSuffix(string(below[0]), "\r")
		below = below[1:]
		if line == "" && strings.TrimSpace(raw) == "" {
			continue
		}
		if indent < 0 {
			indent = len(raw) - len(line)
		}
		if indent < 0 || raw != strings.Repeat(" ", indent)+line {
			return 0, false
		}
	}
	return max(indent, 0), true
}
