package rulefile

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"

	"go.yaml.in/yaml/v4"
)

// A YAML node takes twenty times the memory of its text, so the nodes of a file of 16 MiB would
// need more memory than everything else. Therefore a long list of descriptors is split between its
// items, by indentation only, and parsed in pieces. If a piece does not parse, or depends on
// another, such as by an alias of an anchor there, the file is parsed as a whole.

// pieceBytes is the minimum size of a piece, which ends with the item that reaches it.
const pieceBytes = 64 << 10

// longList is the list below `descriptors:` of a file.
type longList struct {
	// head is the file with empty lines in place of the list.
	head []byte
	// text begins with the first item, on line first. indent is the indentation of the items.
	text          []byte
	first, indent int
	// items is the number of items.
	items int
	// size is the smallest size of a piece.
	size int
	// node is the list in the nodes of head; nil until it is found.
	node *yaml.Node
	// broken is set if the file has to be parsed as a whole.
	broken bool
}

// findLongList returns the list to cut into pieces of the given size, or nil.
func findLongList(content []byte, size int) *longList {
	word := []byte("descriptors:")
	if len(content) < 4*size || content[0] == '%' || bytes.Contains(content, []byte("\n%")) {
		return nil // a directive would apply to the first piece only
	}
	if bytes.Count(content, []byte("\r")) != bytes.Count(content, []byte("\r\n")) ||
		bytes.ContainsAny(content, "\u0085\u2028\u2029") {
		return nil // YAML has other line breaks, too
	}
	at := 0
	if !bytes.HasPrefix(content, word) {
		if at = bytes.Index(content, append([]byte("\n"), word...)) + 1; at == 0 {
			return nil
		}
	}
	line, start := nextLine(content, at)
	if rest := line[len(word):]; !isBlank(rest) {
		return nil
	}
	l := &longList{size: size, first: 2 + bytes.Count(content[:at], []byte("\n")), indent: -1}
	end := start
	for end < len(content) {
		line, next := nextLine(content, end)
		spaces := leadingSpaces(line)
		if l.indent < 0 && !isBlank(line) { // the first item
			l.indent = spaces
			l.first += bytes.Count(content[start:end], []byte("\n"))
			start = end
		}
		if beginsItem(line, l.indent) {
			l.items++
		} else if !isBlank(line) && spaces <= l.indent {
			if spaces > 0 || l.items == 0 {
				return nil
			}
			break // the next key at the top level
		}
		end = next
	}
	if l.items == 0 {
		return nil
	}
	l.text = content[start:end]
	l.head = slices.Concat(content[:start], bytes.Repeat([]byte("\n"), bytes.Count(l.text, []byte("\n"))),
		content[end:])
	return l
}

// nextLine returns the line at an offset, and the offset of the next one.
func nextLine(content []byte, at int) (line []byte, next int) {
	if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
		return content[at : at+i], at + i + 1
	}
	return content[at:], len(content)
}

// isBlank reports whether a line is empty or a comment.
func isBlank(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r")
	return len(line) == 0 || line[0] == '#'
}

func leadingSpaces(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

// beginsItem reports whether an item with the given indentation begins on the line.
func beginsItem(line []byte, indent int) bool {
	return len(line) > indent && leadingSpaces(line) == indent && line[indent] == '-' &&
		(len(line) == indent+1 || line[indent+1] == ' ' || line[indent+1] == '\r')
}

// findNode finds the list in a document of head.
func (l *longList) findNode(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		value := root.Content[i+1]
		if key.Value == "descriptors" && key.Line < l.first && key.Column == 1 && value.Kind == yaml.ScalarNode &&
			value.Value == "" && value.Tag == "!!null" && value.Style == 0 && value.Anchor == "" &&
			!l.laterKey(root, i) {
			*value = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: l.first, Column: l.indent + 1}
			l.node = value
			return
		}
	}
}

// laterKey reports whether the list is not the value of key i of a map, because another key is
// between them.
func (l *longList) laterKey(root *yaml.Node, i int) bool {
	return i+2 < len(root.Content) && root.Content[i+2].Line < l.first
}

// eachItem yields the items of the list. It stops if a piece does not parse.
func (l *longList) eachItem() iter.Seq2[int, *yaml.Node] {
	return func(yield func(int, *yaml.Node) bool) {
		n := 0
		line := l.first
		for rest := l.text; len(rest) > 0; {
			piece := rest[:l.pieceEnd(rest)]
			items := l.load(piece, line-1)
			for _, item := range items {
				if !yield(n, item) {
					return
				}
				n++
			}
			if l.broken {
				return
			}
			rest = rest[len(piece):]
			line += bytes.Count(piece, []byte("\n"))
		}
	}
}

// pieceEnd returns the length of the piece at the start of text.
func (l *longList) pieceEnd(text []byte) int {
	for at := 0; at < len(text); {
		line, next := nextLine(text, at)
		if at >= l.size && beginsItem(line, l.indent) {
			return at
		}
		at = next
	}
	return len(text)
}

// load returns the items of a piece that the given number of lines precedes.
func (l *longList) load(piece []byte, before int) []*yaml.Node {
	var doc, more yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(piece))
	if err != nil || loader.Load(&doc) != nil || !errors.Is(loader.Load(&more), io.EOF) ||
		doc.Content[0].Kind != yaml.SequenceNode || doc.Content[0].Column != l.indent+1 {
		l.broken = true
		return nil
	}
	shiftLines(&doc, before)
	return doc.Content[0].Content
}

// shiftLines adds lines to the line of a node and of all nodes below.
func shiftLines(n *yaml.Node, lines int) {
	n.Line += lines
	for _, below := range n.Content {
		shiftLines(below, lines)
	}
}
