package rulefile

import (
	"math"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// quota reads the field quota. It returns nil if the field is empty or not a map.
func (p *parser) quota(path string, f field) *rules.Quota {
	path += " > quota"
	if isNull(f.value) {
		p.warn(rules.NoEffect, path, f.key, "quota is empty, so the limit is not divided; write quota: {}")
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.value, `quota must be a map such as "{}" or "{ burst: 0.1s }", not %s`, kindName(f.value))
		return nil
	}
	q := &rules.Quota{Burst: rules.DefaultQuotaBurst, MinTokens: rules.DefaultQuotaMinTokens}
	for _, g := range p.fields(path, f.value, fieldName) {
		switch g.name {
		case "burst":
			q.Burst = p.quotaBurst(path, g)
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

// quotaBurst reads the field burst of quota.
func (p *parser) quotaBurst(path string, f field) time.Duration {
	if f.value.Kind == yaml.ScalarNode {
		d, err := time.ParseDuration(resolveScalar(f.value).text)
		if err == nil && d >= 0 && d <= rules.MaxQuotaBurst {
			return d
		}
	}
	p.fail(path, f.value, `"burst" of quota must be a time from 0s to 1m, such as 0.1s, not %s`, kindName(f.value))
	return rules.DefaultQuotaBurst
}
