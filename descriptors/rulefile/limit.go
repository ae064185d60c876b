package rulefile

import (
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// limitBlock is a rate_limit block that is being read. If a descriptor has a second rate_limit,
// from a duplicate key or a merge, its fields are added to the first.
type limitBlock struct {
	path string
	node *yaml.Node
	// given has the fields of the block, and the parts of them that [rules.Mistake] names.
	given map[string]field
	unit  string
	// config has the fields that do not depend on others. limit adds the rest.
	config rules.Limit
	// suppressed are fields not to report as missing: those likely meant by unknown fields, and
	// unit and algorithm if an error in them was reported.
	suppressed []string
}

// rateLimit reads the field rate_limit into b, or into a new block if b is nil.
func (p *parser) rateLimit(path string, f field, b *limitBlock) *limitBlock {
	path += " > rate_limit"
	if isNull(f.value) {
		p.warn(rules.EmptyLimit, path, f.key, "rate_limit is empty, so requests are not limited here")
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.at, "%s, not %s", notALimit, kindName(f.value))
		return b
	}
	return p.readLimit(path, f.at, f.value, b)
}

// notALimit is the error for a rate_limit that is not a map.
const notALimit = `a rate_limit must be a map with "unit" and "requests_per_unit"`

func (p *parser) rateLimits(path string, f field) []rules.Limit {
	if f.value.Kind == yaml.SequenceNode && len(f.value.Content) == 0 {
		p.fail(rules.Below(path, f.name), f.value, `"rate_limits" is empty; it must have at least one rate_limit block`)
		return nil
	}
	var limits []rules.Limit
	p.eachMap(path, f, "a list of rate_limit blocks", notALimit, func(here string, at, m *yaml.Node) {
		b := p.readLimit(here, at, m, nil)
		if b.config.Unlimited {
			p.fail(b.path, b.given["unlimited"].key, `"unlimited" is not allowed in rate_limits; use rate_limit`)
		} else if limit, ok := p.finishLimit(b); ok {
			limits = append(limits, limit)
		}
	})
	return limits
}

// readLimit reads the map m into b, or into a new block if b is nil.
func (p *parser) readLimit(path string, at, m *yaml.Node, b *limitBlock) *limitBlock {
	if b == nil {
		b = &limitBlock{given: map[string]field{}, config: rules.Limit{UnitMultiplier: 1}}
	}
	b.path = path
	b.node = at
	l := &b.config
	for _, f := range p.fields(path, m, fieldName) {
		b.given[f.name] = f
		switch f.name {
		case "unit":
			var ok bool
			if b.unit, ok = p.text(path, f); !ok {
				b.suppressed = append(b.suppressed, f.name)
			}
		case "requests_per_unit":
			l.RequestsPerUnit = 0
			if !isNull(f.value) {
				l.RequestsPerUnit, _ = p.number(path, f, 0, math.MaxUint32)
			} else {
				delete(b.given, f.name)
			}
		case "unlimited":
			l.Unlimited = p.bool(path, f)
		case "name":
			l.Name = p.limitName(path, f)
		case "replaces":
			l.Replaces = p.replaces(path, f)
		case "quota":
			l.Quota = p.quota(path, f, b)
		case "counter":
			l.Counter = p.requiredText(path, f, "names a counter that limits of the domain share")
		case "shadow":
			l.Shadow = p.strictBool(path, f)
		default:
			if p.readDefaultableField(path, f, b) {
				continue
			}
			if meant := p.reportUnknownField(path, limitFields, f); meant != "" {
				b.suppressed = append(b.suppressed, meant)
			}
		}
	}
	return b
}

// readDefaultableField reads a field of defaultableFields into b. It returns false for other
// fields.
func (p *parser) readDefaultableField(path string, f field, b *limitBlock) bool {
	l := &b.config
	switch f.name {
	case "reserve":
		failures := p.failures
		l.Reserve = p.reserve(path, f, b)
		if p.failures > failures {
			// A field that it lacks may have been reported as unknown.
			b.suppressed = append(b.suppressed, f.name)
		}
	case "penalty":
		l.Penalty = p.penalty(path, f, b)
	case "unit_multiplier":
		if m, ok := p.number(path, f, 1, math.MaxUint32); ok {
			l.UnitMultiplier = m
		}
	case "algorithm":
		var ok bool
		if l.Algorithm, ok = rules.AlgorithmNamed(p.choice(path, f, rules.AlgorithmNames())); !ok {
			b.suppressed = append(b.suppressed, f.name)
		}
	case "sub_windows":
		l.SubWindows = p.optional(path, f, 1, limiter.MaxSubWindows)
	case "burst":
		l.Burst = p.optional(path, f, 1, math.MaxUint32)
	case "slack":
		l.Slack = p.optional(path, f, 0, math.MaxUint32)
	case "max_wait":
		if d, ok := p.duration(path, f); ok {
			l.MaxWait = &d
		}
	case "max_waiting":
		l.MaxWaiting = p.optional(path, f, 0, math.MaxUint32)
	case "count_refused":
		l.CountRefused = new(p.strictBool(path, f))
	case "calendar":
		l.Calendar = new(p.strictBool(path, f))
	case "timezone":
		l.Timezone = p.timezone(path, f)
	case "anchor_day":
		l.AnchorDay, _ = p.number(path, f, 1, 31)
	case "hidden":
		l.Hidden = new(p.strictBool(path, f))
	case "soft":
		l.Soft = new(p.strictBool(path, f))
	case "notify_at":
		l.NotifyAt = p.shares(path, f)
	case "table":
		l.Table = p.requiredText(path, f, "names a table of numbers")
	case "blocks":
		l.NoBlocks = p.blocks(path, f)
	default:
		return false
	}
	return true
}

// finishLimit returns the limit of a complete block. If ok is false, it reported an error and the
// limit is unusable.
func (p *parser) finishLimit(b *limitBlock) (l rules.Limit, ok bool) {
	l = b.config
	l.Pos = p.pos(b.node)
	unit, known := rules.UnitNamed(b.unit)
	if l.Unlimited {
		l.RequestsPerUnit = 0
		if known {
			p.fail(b.path, b.given["unit"].value, `"unlimited" excludes "unit"; remove one of them`)
		} else if b.unit != "" {
			p.warn(rules.NoEffect, b.path, b.given["unit"].value,
				`"unit" has no effect with "unlimited", and %q is not a unit`, rules.Shorten(b.unit))
		}
		for _, word := range append([]string{"counter"}, defaultableFields...) {
			if f, ok := b.given[word]; ok {
				p.fail(b.path, f.key, `%q is not supported with "unlimited"`, word)
			}
		}
		return l, true
	}
	if !known {
		p.reportUnknownUnit(b)
		return l, false
	}
	l.Unit = unit
	if wrong := l.WindowMistake(); wrong != "" {
		p.fail(b.path, b.given["unit_multiplier"].value, "%s", wrong)
		return l, false
	}
	if _, ok := b.given["requests_per_unit"]; !ok && !slices.Contains(b.suppressed, "requests_per_unit") {
		p.warn(rules.MissingNumber, b.path, b.node, `"requests_per_unit" is missing and counts as 0, which denies every request; write 0 if that is intended`)
	}
	return l, p.checkAlgorithmFields(b, &l)
}

func (p *parser) reportUnknownUnit(b *limitBlock) {
	allowed := strings.Join(rules.UnitNames(), ", ")
	switch f, given := b.given["unit"]; {
	case b.unit == "" && (slices.Contains(b.suppressed, "unit") || slices.Contains(b.suppressed, "unlimited")):
	case b.unit == "" && !given:
		p.fail(b.path, b.node, `"unit" is missing (allowed: %s)`, allowed)
	case b.unit == "":
		p.fail(b.path, f.key, `"unit" is empty (allowed: %s)`, allowed)
	default:
		p.failChoice(b.path, f, b.unit, rules.UnitNames())
	}
}

func (p *parser) limitName(path string, f field) string {
	name, _ := p.text(path, f)
	if mistake := rules.NameMistake(name); mistake != "" {
		p.warn(rules.UnsafeName, path, f.value, "%s", mistake)
	}
	return name
}

// requiredText reads a field that must not be empty. meaning completes a sentence that begins with "it".
func (p *parser) requiredText(path string, f field, meaning string) string {
	text, ok := p.text(path, f)
	if ok && text == "" {
		p.fail(path, f.key, "%q is empty; it %s", f.name, meaning)
	}
	return text
}

// blocks reads the field blocks: true is off, false is auto. It returns nil if it reported an error.
func (p *parser) blocks(path string, f field) *bool {
	if f.value.Kind == yaml.ScalarNode {
		s := resolveScalar(f.value)
		switch {
		case s.kind == textScalar && s.text == "off", s.kind == boolScalar && !s.bool: // unquoted, off is a boolean
			return new(true)
		case s.kind == textScalar && s.text == "auto":
			return new(false)
		}
	}
	p.fail(path, f.value, "%q must be off or auto, not %s", f.name, kindName(f.value))
	return nil
}

func (p *parser) replaces(path string, f field) []string {
	if isNull(f.value) {
		return nil
	}
	var names []string
	p.eachMap(path, f, `a list of maps with "name"`, `an item of replaces must be a map with "name"`, func(
		here string, at, m *yaml.Node,
	) {
		name := ""
		ok := true
		for _, g := range p.fields(here, m, fieldName) {
			if g.name == "name" {
				name, ok = p.text(here, g)
			} else {
				ok = p.reportUnknownField(here, replacesFields, g) != "name" && ok
			}
		}
		switch {
		case !ok:
		case name == "":
			p.fail(here, at, `"name" is missing or empty; it must be the name of the limit to replace`)
		default:
			names = append(names, name)
		}
	})
	return names
}
