package rulefile

import (
	"math"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// reserve reads the field reserve. It returns nil if the field is not a map.
func (p *parser) reserve(path string, f field, b *limitBlock) *rules.Reserve {
	path += " > reserve"
	fields, ok := p.mapFields(path, f, "{ amount: 2000 }")
	if !ok {
		return nil
	}
	r := &rules.Reserve{TTL: rules.DefaultTTL}
	estimated := false
	for _, g := range fields {
		b.given["reserve."+g.name] = g
		switch g.name {
		case "amount":
			r.Amount, _ = p.number(path, g, 1, math.MaxUint32)
		case "first":
			r.First, _ = p.number(path, g, 1, math.MaxUint32)
		case "p90":
			estimated = p.strictBool(path, g)
		case "ttl":
			r.TTL, _ = p.duration(path, g)
		case "unsettled":
			r.Release = p.choice(path, g, []string{"keep", "release"}) == "release"
		default:
			p.reportUnknownField(path, reserveFields, g)
		}
	}
	if r.First > 0 && !estimated && r.Amount == 0 {
		p.fail(path, f.key,
			`"first" has no effect without "p90: true"; for the same number each time write "amount: %d"`, r.First)
	}
	if estimated && r.Amount > 0 {
		p.fail(path, f.key, `"amount" and "p90: true" exclude each other; remove one of them`)
	}
	return r
}
