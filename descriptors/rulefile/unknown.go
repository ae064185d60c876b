package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// reportUnknownField reports a field that a map cannot have. Fields of envoyproxy/ratelimit have no
// effect there and are warnings only. It returns the field that was likely meant, so that it is not
// reported as missing, too.
func (p *parser) reportUnknownField(path string, v fieldSet, f field) (meant string) {
	home := fieldSetsOf(f.name)
	switch {
	case slices.Contains(referenceFields, f.name):
		p.warn(rules.NoEffect, path, f.key, "%q has no effect %s; it belongs %s", f.name, v.where, whereText(home))
		p.checkIgnored(path, f)
	case len(home) > 0:
		p.fail(path, f.key, "%q is not allowed %s; it belongs %s", f.name, v.where, whereText(home))
	default:
		message := fmt.Sprintf("unknown field %q %s", rules.Shorten(f.name), v.where)
		if meant = rules.Suggest(f.name, v.names); meant != "" {
			message += fmt.Sprintf("; did you mean %q?", meant)
		} else if s := rules.Suggest(f.name, knownFields()); s != "" {
			message += fmt.Sprintf("; did you mean %q, which belongs %s?", s, whereText(fieldSetsOf(s)))
		}
		p.fail(path, f.key, "%s (allowed: %s)", message, strings.Join(v.names, ", "))
	}
	return meant
}

func knownFields() []string {
	var all []string
	for _, v := range fieldSets() {
		all = append(all, v.names...)
	}
	return all
}

func whereText(vs []fieldSet) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.where
	}
	return strings.Join(names, " or ")
}

// checkIgnored checks the value of a field without effect as envoyproxy/ratelimit does: fields must
// be known, and items of lists must be maps.
func (p *parser) checkIgnored(path string, f field) {
	if f.name == "metadata" || !p.enter(f.value) {
		return
	}
	defer p.leave()
	switch f.value.Kind {
	case yaml.MappingNode:
		p.checkIgnoredMap(path, f.value)
	case yaml.SequenceNode:
		for _, item := range f.value.Content {
			m := p.resolveAlias(item)
			if m.Kind != yaml.MappingNode {
				p.fail(path, item, "%q is a list of %s; items must be maps", f.name, kindName(m))
				continue
			}
			p.checkIgnoredMap(path, m)
		}
	default:
		p.text(path, f)
	}
}

func (p *parser) checkIgnoredMap(path string, m *yaml.Node) {
	if !p.enter(m) {
		return
	}
	defer p.leave()
	for _, f := range p.fields(path, m, fieldName) {
		if slices.Contains(referenceFields, f.name) {
			p.checkIgnored(path, f)
			continue
		}
		p.reportUnknownField(path, fieldSet{"in a part without effect", referenceFields}, f)
	}
}
