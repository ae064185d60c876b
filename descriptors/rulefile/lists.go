package rulefile

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// eachMap reads a list of maps below path and calls visit for every item. here is the item's path,
// at the item as it is in the list, and m the map; at and m differ for an alias. list and item are
// the expected types of the two in error messages.
func (p *parser) eachMap(path string, f field, list, item string, visit func(here string, at, m *yaml.Node)) {
	path = rules.Below(path, f.name)
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, "%q must be %s, not %s", f.name, list, kindName(f.value))
		return
	}
	if !p.enter(f.value) {
		return
	}
	defer p.leave()
	items := slices.All(f.value.Content)
	if p.list != nil && f.value == p.list.node {
		items = p.list.eachItem()
	}
	for i, at := range items {
		if p.stopped {
			return
		}
		m := p.resolveAlias(at)
		here := fmt.Sprintf("%s[%d]", path, i)
		if m.Kind != yaml.MappingNode {
			p.fail(here, at, "%s, not %s", item, kindName(m))
			continue
		}
		visit(here, at, m)
	}
}
