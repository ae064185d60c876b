package tree

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// ReadText returns the values of a file that stands in n, a text of the file that source is. Where the text is a
// block of lines the values have their places in source, and elsewhere all have that of n.
func ReadText(n *Node, source []byte) ([]Node, error) {
	if n.Kind != Text {
		return nil, nil
	}
	roots, err := Read(*n.file, []byte(n.Text), rules.Allowances{}) // its lines are not those of the file
	if err != nil {
		return nil, err
	}
	place := func(at *Node) { at.line, at.col = n.line, n.col }
	if lines := bytes.SplitAfterN(source, []byte{'\n'}, int(n.line)+2); isBlockScalar(lines, n) {
		first := lines[n.line]
		indent := int32(len(first) - len(bytes.TrimLeft(first, " "))) //nolint:gosec // files are smaller than 2 GiB
		place = func(at *Node) { at.line, at.col = at.line+n.line, at.col+indent }
	}
	for i := range roots {
		roots[i].Walk(place)
	}
	return roots, nil
}

// isBlockScalar reports whether the text of n begins in the line below it.
func isBlockScalar(lines [][]byte, n *Node) bool {
	if len(lines) <= int(n.line) || int(n.col) > len(lines[n.line-1]) {
		return false
	}
	c := lines[n.line-1][n.col-1]
	return (c == '|' || c == '>') && len(bytes.TrimSpace(lines[n.line])) > 0
}

// Walk calls f with the node and with all below it.
func (n *Node) Walk(f func(*Node)) {
	f(n)
	for i := range n.Nodes {
		n.Nodes[i].Walk(f)
	}
}
