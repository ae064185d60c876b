package rulefile

import (
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// reserve reads the field reserve. It returns nil if the field is empty or not a map.
func (p *parser) reserve(path string, f field) *rules.Reserve {
	path += " > reserve"
	if isNull(f.value) {
		p.warn(rules.NoEffect, path, f.key, "reserve is empty, so requests reserve nothing")
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.value, `reserve must be a map such as "{ amount: 2000 }", not %s`, kindName(f.value))
		return nil
	}
	r := &rules.Reserve{TTL: rules.DefaultTTL}
	estimated := false
	for _, g := range p.fields(path, f.value, fieldName) {
		switch g.name {
		case "amount":
			r.Amount, _ = p.number(path, g, 1, math.MaxUint32)
		case "first":
			r.First, _ = p.number(path, g, 1, math.MaxUint32)
		case "p90":
			estimated = p.strictBool(path, g)
		case "ttl":
			r.TTL = p.ttl(path, g)
		case "unsettled":
			r.Release = p.unsettled(path, g)
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

func (p *parser) ttl(path string, f field) time.Duration {
	if f.value.Kind == yaml.ScalarNode {
		d, err := time.ParseDuration(resolveScalar(f.value).text)
		if err == nil && d >= time.Second && d <= rules.MaxTTL && d%time.Second == 0 {
			return d
		}
	}
	p.fail(path, f.value, `"ttl" must be whole seconds from 1s to 1h, such as 60s or 5m, not %s`, kindName(f.value))
	return rules.DefaultTTL
}

// unsettled reads the field unsettled. It returns true for release.
func (p *parser) unsettled(path string, f field) bool {
	text, ok := p.text(path, f)
	allowed := []string{"keep", "release"}
	if ok && !slices.Contains(allowed, text) {
		p.fail(path, f.value, "unknown value %q of unsettled%s (allowed: keep, release)", rules.Shorten(text),
			rules.DidYouMean(text, allowed))
	}
	return text == "release"
}
