package rulefile

import (
	"math"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// quota reads the field quota. It returns nil if the field is not a map.
func (p *parser) quota(path string, f field, b *limitBlock) *rules.Quota {
	path += " > quota"
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.value, `"quota" must be a map, such as {} or { burst: 0.1s }, not %s`, kindName(f.value))
		return nil
	}
	q := &rules.Quota{Burst: rules.DefaultQuotaBurst, MinTokens: rules.DefaultQuotaMinTokens}
	for _, g := range p.fields(path, f.value, fieldName) {
		b.given["quota."+g.name] = g
		switch g.name {
		case "burst":
			q.Burst, _ = p.duration(path, g)
		case "min_tokens":
			if n, ok := p.number(path, g, 1, math.MaxUint32); ok {
				q.MinTokens = n
			}
		case "approximate":
			q.Approximate = p.strictBool(path, g)
		default:
			p.reportUnknownField(path, quotaFields, g)
		}
	}
	return q
}
