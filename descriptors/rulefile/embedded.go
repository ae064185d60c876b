package rulefile

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// textLines finds lines of a file. It splits the file, and decodes a line, once: an object may have
// many texts, and all of them may be in one line.
type textLines struct {
	all    [][]byte
	runes  []rune
	number int // number of the line in runes; 0 for none
}

// line returns a line without its end, or nil. The first line is 1.
func (l *textLines) line(content []byte, number int) []byte {
	if l.all == nil {
		l.all = bytes.Split(content, []byte("\n"))
	}
	if number > len(l.all) {
		return nil
	}
	return l.all[number-1]
}

func (l *textLines) runesOf(content []byte, number int) []rune {
	if l.number != number {
		l.runes = []rune(string(l.line(content, number)))
		l.number = number
	}
	return l.runes
}

// embedded reads the rules in a value of a ConfigMap. content is the file, to which places in
// diagnostics refer.
func (p *parser) embedded(content []byte, text *yaml.Node) []rules.Config {
	inner := newParser(p.file, []byte(text.Value))
	inner.mapPos = p.lines.placesOf(content, text)
	inner.allowances = inner.allowances.Moved(func(at rules.Pos) rules.Pos { return inner.at(at.Line, at.Col) })
	inner.nodes = p.nodes // bounds the nodes of all files of the object together
	configs := inner.read([]byte(text.Value), nil)
	p.nodes = inner.nodes
	p.errors += inner.errors
	p.warnings += inner.warnings
	p.diagnostics = append(p.diagnostics, inner.diagnostics...)
	p.rangeFiles = append(p.rangeFiles, inner.rangeFiles...)
	return configs
}

// placesOf returns a function that maps lines and columns of a scalar's text to those of the file.
// If the lines of the text are not lines of the file, it maps all to the start of the scalar.
func (l *textLines) placesOf(content []byte, scalar *yaml.Node) func(line, col int) (int, int) {
	switch {
	case scalar.Style&yaml.LiteralStyle != 0:
		if indent, ok := l.indentOf(content, scalar); ok {
			return func(line, col int) (int, int) { return scalar.Line + line, col + indent }
		}
	case scalar.Style&yaml.DoubleQuotedStyle != 0:
		if starts := quotedLines(l.runesOf(content, scalar.Line), scalar.Column); starts != nil {
			return func(line, col int) (int, int) {
				line = min(line, len(starts)) - 1
				return scalar.Line, starts[line][min(col, len(starts[line]))-1]
			}
		}
	}
	return func(int, int) (int, int) { return scalar.Line, scalar.Column }
}

// indentOf returns the indentation of a block scalar. ok is false if its lines are not those of its
// text.
func (l *textLines) indentOf(content []byte, scalar *yaml.Node) (indent int, ok bool) {
	number := scalar.Line
	indent = -1
	for line := range strings.Lines(scalar.Value) {
		number++
		there := l.line(content, number)
		line := strings.TrimSuffix(line, "\n")
		raw := strings.TrimSuffix(string(there), "\r")
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

// quotedLines returns, for each line of a double-quoted text at a column of raw, the columns of its
// letters and of its end. It returns nil if the text takes several lines of the file.
func quotedLines(raw []rune, at int) (lines [][]int) {
	if at > len(raw) || raw[at-1] != '"' { // at is the index of the first letter after the quote
		return nil
	}
	columns := []int{}
	for at < len(raw) && raw[at] != '"' {
		columns = append(columns, at+1)
		if raw[at] != '\\' {
			at++
			continue
		}
		if at+1 >= len(raw) {
			return nil // an escaped line break
		}
		if raw[at+1] == 'n' {
			lines = append(lines, columns)
			columns = nil
		}
		at += 2 + map[rune]int{'x': 2, 'u': 4, 'U': 8}[raw[at+1]]
	}
	if at >= len(raw) {
		return nil
	}
	return append(lines, append(columns, at+1))
}
