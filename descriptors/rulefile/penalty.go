package rulefile

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// penalty reads the steps of the field penalty; [rules.Limit.Mistakes] checks them together. It
// returns nil if it reported an error.
func (p *parser) penalty(path string, f field) []time.Duration {
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, `"penalty" must be a list of increasing durations, such as [2m, 5m, 10m], not %s`,
			kindName(f.value))
		return nil
	}
	steps := []time.Duration{}
	for _, at := range f.value.Content {
		step, ok := p.duration(path, field{name: "a step of penalty", value: p.resolveAlias(at)})
		if !ok {
			return nil
		}
		steps = append(steps, step)
	}
	return steps
}
