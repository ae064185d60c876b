package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// field is a key of a map with its value, with aliases resolved.
type field struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
	// at is the value in the map, which may be an alias.
	at *yaml.Node
}

// fields returns the keys and values of a map, including those merged by `<<`, in the order in
// which they take effect: later ones override earlier ones.
//
// As in envoyproxy/ratelimit's library, `<<` overrides the keys above it. In YAML it overrides
// none, so fields warns of the difference.
func (p *parser) fields(path string, m *yaml.Node, keyText func(*yaml.Node) (string, bool)) []field {
	if text := templateText(m); text != "" {
		p.fail(path, m, "%s is a template; %s", text, templateRemedy)
		return nil
	}
	if !p.enter(m) {
		return nil
	}
	defer p.leave()
	var all []field
	explicit := map[string]*yaml.Node{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key := p.resolveAlias(m.Content[i])
		at := m.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge" {
			for _, f := range p.merged(path, key, at, keyText) {
				if _, ok := explicit[f.name]; ok {
					p.warn(rules.MergeOrder, path, key,
						`"<<" overrides %q above it, as in envoyproxy/ratelimit; write "<<" first`, f.name)
				}
				all = append(all, f)
			}
			continue
		}
		word, ok := keyText(key)
		if !ok {
			hint := ""
			if key.Kind == yaml.ScalarNode {
				hint = "; put it in quotes"
			}
			p.fail(path, key, "a key of a map must be text, not %s%s", kindName(key), hint)
			continue
		}
		if first, ok := explicit[word]; ok {
			outcome := "the last one wins"
			if word == "rate_limit" || word == "metadata" {
				outcome = "their fields are merged, as in envoyproxy/ratelimit"
			}
			p.warn(rules.Twice, path, key, "%q is a duplicate, first on line %d; %s", word, p.pos(first).Line, outcome)
		}
		explicit[word] = key
		all = append(all, field{word, key, p.resolveAlias(at), at})
	}
	return all
}

// fieldName is the keyText of maps of fields.
func fieldName(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false
	}
	s := resolveScalar(n)
	return s.text, s.kind == textScalar
}

// merged returns the fields of `<<: value`. The first map of a list has precedence, so it comes
// last.
func (p *parser) merged(path string, key, value *yaml.Node, keyText func(*yaml.Node) (string, bool)) []field {
	n := p.resolveAlias(value)
	switch n.Kind {
	case yaml.MappingNode:
		return p.fields(path, n, keyText)
	case yaml.SequenceNode:
		var all []field
		for _, item := range slices.Backward(n.Content) {
			m := p.resolveAlias(item)
			if m.Kind != yaml.MappingNode {
				p.fail(path, item, `"<<" merges maps, not %s`, kindName(m))
				continue
			}
			all = append(all, p.fields(path, m, keyText)...)
		}
		return all
	default:
		p.fail(path, key, `"<<" merges a map or a list of maps, not %s`, kindName(n))
		return nil
	}
}
