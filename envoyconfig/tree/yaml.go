package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// maxAliased bounds the nodes that aliases expand to, since ten short lines of aliases can make billions of nodes.
const maxAliased = 1 << 20

// parseYAML reads the documents of a text, except empty ones.
func parseYAML(file string, in []byte) ([]Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	var all []Node
	for {
		var doc yaml.Node
		if err := loader.Load(&doc); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(doc.Content) == 0 {
			continue
		}
		var n Node
		c := converter{file: &file, left: maxAliased}
		if err := c.convert(doc.Content[0], &n, 0, false); err != nil {
			return nil, err
		}
		if n.Kind != Null {
			all = append(all, n)
		}
	}
}

// converter converts nodes of the YAML library.
type converter struct {
	file *string
	// left is the number of nodes that aliases may still expand to.
	left int
}

// posError is an error with a position.
type posError struct {
	line, col int
	message   string
}

func (e *posError) Error() string { return e.message }

func (c *converter) convert(y *yaml.Node, n *Node, depth int, aliased bool) error {
	if depth > maxDepth {
		return &posError{y.Line, y.Column, fmt.Sprintf("more than %d levels deep, or an alias of itself", maxDepth)}
	}
	if aliased {
		if c.left--; c.left < 0 {
			return &posError{y.Line, y.Column, fmt.Sprintf("aliases make more than %d values of this file", maxAliased)}
		}
	}
	n.file = c.file
	n.line, n.col = int32(y.Line), int32(y.Column) //nolint:gosec // files are smaller than 2 GiB
	switch y.Kind {
	case yaml.AliasNode:
		return c.convert(y.Alias, n, depth+1, true)
	case yaml.MappingNode:
		n.Kind = Object
		n.Nodes = make([]Node, len(y.Content)/2)
		for i := range n.Nodes {
			key := y.Content[2*i]
			if key.Kind == yaml.AliasNode {
				key = key.Alias
			}
			if key.Kind != yaml.ScalarNode {
				return &posError{key.Line, key.Column, "the name of a field must be text"}
			}
			n.Nodes[i].Name = key.Value
			if err := c.convert(y.Content[2*i+1], &n.Nodes[i], depth+1, aliased); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		n.Kind = List
		n.Nodes = make([]Node, len(y.Content))
		for i := range n.Nodes {
			if err := c.convert(y.Content[i], &n.Nodes[i], depth+1, aliased); err != nil {
				return err
			}
		}
		n.flatten()
	case yaml.ScalarNode:
		n.Text = y.Value
		switch y.ShortTag() {
		case "!!null":
			n.Kind = Null
			n.Text = ""
		case "!!bool":
			n.Kind = Boolean
		case "!!int", "!!float":
			n.Kind = Number
		default:
			n.Kind = Text
			if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 &&
				IsYAML11Bool(n.Text) {
				n.Kind = Boolean
			}
		}
	default:
		return &posError{y.Line, y.Column, "not a YAML value"}
	}
	return nil
}

// IsYAML11Bool reports whether the unquoted text is a boolean in YAML 1.1, which Envoy uses: in lower case, upper
// case or capitalized.
func IsYAML11Bool(text string) bool {
	small := strings.ToLower(text)
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, small) &&
		(text == small || text == strings.ToUpper(text) || text[1:] == small[1:])
}

// yamlError adds the position to an error of the YAML parser.
func yamlError(name string, err error) error {
	pos := rules.Pos{File: name, Line: 1, Col: 1}
	message := err.Error()
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		pos.Line = max(e.Mark.Line, 1)
		pos.Col = max(e.Mark.Column, 1)
		message = "invalid YAML: " + e.Message
	}
	if e, ok := errors.AsType[*posError](err); ok {
		pos.Line = e.line
		pos.Col = e.col
	}
	return fmt.Errorf("%v: %s", pos, message)
}
