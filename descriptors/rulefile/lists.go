package rulefile

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// maps reads a list of maps below path and calls each for every item. Here is the item's
// place in the tree, at the item as it stands in the list, and m the map. The last two
// differ for an alias. List and item say in diagnostics what the two must be.
func (p *parser) maps(path string, f field, list, item string, each func(here string, at, m *yaml.Node)) {
	path = rules.Below(path, f.word)
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, "%q must be %s, not %s", f.word, list, kindName(f.value))
		return
	}
	if !p.enter(f.value) {
		return
	}
	defer p.leave()
	items := slices.All(f.value.Content)
	if p.list != nil && f.value == p.list.node {
		items = p.list.all()
	}
	for i, at := range items {
		if p.stopped {
			return
		}
		m, here := p.follow(at), fmt.Sprintf("%s[%d]", path, i)
		if m.Kind != yaml.MappingNode {
			p.fail(here, at, "%s, not %s", item, kindName(m))
			continue
		}
		each(here, at, m)
	}
}
