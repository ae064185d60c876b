package tree

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// ReadText returns the documents of a file embedded as text in n, where lines are those of the outer file. If the
// text is a block scalar, nodes have their positions in the outer file; otherwise all have the position of n.
func ReadText(n *Node, lines [][]byte) ([]Node, error) {
	if n.Kind != Text {
		return nil, nil
	}
	roots, err := Read(*n.file, []byte(n.Text), rules.Allowances{}) // comments in it acknowledge nothing
	if err != nil {
		return nil, err
	}
	setPos := func(at *Node) {
		at.line = n.line
		at.col = n.col
	}
	if isBlockScalar(lines, n) {
		first := lines[n.line]
		indent := int32(len(first) - len(bytes.TrimLeft(first, " "))) //nolint:gosec // files are smaller than 2 GiB
		setPos = func(at *Node) {
			at.line += n.line
			at.col += indent
		}
	}
	for i := range roots {
		roots[i].Walk(setPos)
	}
	return roots, nil
}

// isBlockScalar reports whether the text of n starts on the next line.
func isBlockScalar(lines [][]byte, n *Node) bool {
	if len(lines) <= int(n.line) || int(n.col) > len(lines[n.line-1]) {
		return false
	}
	c := lines[n.line-1][n.col-1]
	return (c == '|' || c == '>') && len(bytes.TrimSpace(lines[n.line])) > 0
}

// Walk calls f for the node and all its descendants.
func (n *Node) Walk(f func(*Node)) {
	f(n)
	for i := range n.Nodes {
		n.Nodes[i].Walk(f)
	}
}
