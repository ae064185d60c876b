package rulefile

import (
	"fmt"
	"maps"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// metadata reads the field metadata into m and returns it. Keys and types are those of
// google.protobuf.Struct. m has the keys of an earlier metadata of the same descriptor: as in
// envoyproxy/ratelimit, the two are merged.
func (p *parser) metadata(path string, f field, m map[string]any) map[string]any {
	path += " > metadata"
	if isNull(f.value) {
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.value, "metadata must be a map, not %s", kindName(f.value))
		return m
	}
	fields := p.structFields(path, f.value, writtenKeyText)
	if m == nil && len(fields) > 0 {
		m = map[string]any{}
	}
	maps.Copy(m, fields)
	return m
}

func (p *parser) structFields(path string, n *yaml.Node, keyText func(*yaml.Node) (string, bool)) map[string]any {
	if !p.enter(n) {
		return nil
	}
	defer p.leave()
	m := map[string]any{}
	for _, f := range p.fields(path, n, keyText) {
		if !utf8.ValidString(f.name) {
			p.fail(path, f.key, "a key of metadata must be valid UTF-8, not %q", rules.Shorten(f.name))
			continue
		}
		m[f.name] = p.structValue(path, f.value)
	}
	return m
}

func (p *parser) structValue(path string, n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		return p.structFields(path, n, printedKeyText)
	case yaml.SequenceNode:
		if !p.enter(n) {
			return nil
		}
		defer p.leave()
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, p.structValue(path, p.resolveAlias(item)))
		}
		return list
	default:
		return p.structScalar(path, n)
	}
}

func (p *parser) structScalar(path string, n *yaml.Node) any {
	s := resolveScalar(n)
	switch s.kind {
	case nullScalar:
		return nil
	case boolScalar:
		return s.bool
	case intScalar:
		return float64(s.int)
	case uintScalar:
		return float64(s.uint)
	case floatScalar:
		return s.float
	case badScalar:
		p.fail(path, n, "%q does not fit its tag %s", rules.Shorten(s.text), n.ShortTag())
		return nil
	default:
		if !utf8.ValidString(s.text) {
			p.fail(path, n, "text in metadata must be valid UTF-8, not %q", rules.Shorten(s.text))
		}
		return s.text
	}
}

// writtenKeyText is the keyText of metadata itself: keys are as written, and null is empty.
func writtenKeyText(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false
	}
	s := resolveScalar(n)
	if s.kind == nullScalar {
		return "", true
	}
	return s.text, s.kind != badScalar
}

// printedKeyText is the keyText of maps inside metadata: keys are as Go prints their values.
// envoyproxy/ratelimit has this difference, too.
func printedKeyText(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false
	}
	s := resolveScalar(n)
	switch s.kind {
	case boolScalar:
		return strconv.FormatBool(s.bool), true
	case intScalar:
		return strconv.FormatInt(s.int, 10), true
	case uintScalar:
		return strconv.FormatUint(s.uint, 10), true
	case floatScalar:
		return fmt.Sprint(s.float), true
	case nullScalar:
		return "<nil>", true
	default:
		return s.text, s.kind == textScalar
	}
}
