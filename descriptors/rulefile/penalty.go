package rulefile

import (
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// penalty reads the steps of the field penalty; [rules.Limit.Mistakes] checks them together. It
// returns nil if it reported an error or if the field is empty.
func (p *parser) penalty(path string, f field) []time.Duration {
	if isNull(f.value) {
		p.warn(rules.NoEffect, path, f.key, "penalty is empty, so it has no effect")
		return nil
	}
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, `"penalty" must be a list of increasing durations, such as [2m, 5m, 10m], not %s`,
			kindName(f.value))
		return nil
	}
	steps := make([]time.Duration, 0, len(f.value.Content))
	for _, at := range f.value.Content {
		item := p.resolveAlias(at)
		step := time.Duration(0)
		err := error(nil)
		if item.Kind == yaml.ScalarNode {
			step, err = time.ParseDuration(resolveScalar(item).text)
		}
		if item.Kind != yaml.ScalarNode || err != nil {
			p.fail(path, at, `a step of "penalty" must be a duration, such as 90s, 10m or 24h, not %s`, kindName(item))
			return nil
		}
		steps = append(steps, step)
	}
	return steps
}
