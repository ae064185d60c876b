package rulefile

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"
)

// penalty reads the steps of the field penalty; [rules.Limit.Mistakes] checks them together. It
// returns nil if it reported an error.
func (p *parser) penalty(path string, f field, b *limitBlock) []time.Duration {
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, `"penalty" must be a list of increasing durations, such as [2m, 5m, 10m], not %s`,
			kindName(f.value))
		return nil
	}
	steps := []time.Duration{}
	for i, at := range f.value.Content {
		item := field{name: fmt.Sprintf("penalty[%d]", i), value: p.resolveAlias(at)}
		b.given[item.name] = item
		step, ok := p.duration(path, item)
		if !ok {
			return nil
		}
		steps = append(steps, step)
	}
	return steps
}
