package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// descriptors reads a list of descriptors. It omits those with errors.
func (p *parser) descriptors(path string, f field) []rules.Descriptor {
	if isNull(f.value) {
		return nil
	}
	n := len(f.value.Content)
	if p.list != nil && f.value == p.list.node {
		n = p.list.items
	}
	list := make([]rules.Descriptor, 0, n)
	p.eachMap(path, f, "a list of maps", `a descriptor must be a map with "key"`, func(here string, at, m *yaml.Node) {
		if !p.enter(m) {
			return
		}
		failures := p.failures
		omitted := p.omitted
		d := p.descriptor(path, here, at, m)
		p.leave()
		failed := p.failures - failures
		if below := p.omitted - omitted; failed > below { // it has errors of its own: omit it and all below it
			p.omitted = omitted + failed
			return
		}
		list = append(list, d)
	})
	return list
}

// descriptor reads a descriptor below path. numbered is its path by index.
func (p *parser) descriptor(path, numbered string, item, m *yaml.Node) (d rules.Descriptor) {
	fields := p.fields(numbered, m, fieldName)
	path = descriptorPath(path, numbered, fields)

	d.Pos = p.pos(item)
	var single *limitBlock
	var several *field
	for _, f := range fields {
		switch f.name {
		case "key":
			d.Key, _ = p.text(path, f)
			d.Key = p.intern(d.Key)
		case "value":
			d.Value, _ = p.text(path, f)
		case "values", "cidr", "prefix":
			p.valueSet(path, f, &d)
		case "rate_limit":
			if isNull(f.value) && hasField(fields, "unit", "requests_per_unit") {
				p.fail(path, f.key, `"rate_limit" is empty, and its fields are next to it; indent them to move them below it`)
				continue
			}
			single = p.rateLimit(path, f, single)
		case "rate_limits":
			several = &f
			d.RateLimits = p.rateLimits(path, f)
			d.List = true
		case "descriptors":
			d.Descriptors = p.descriptors(path, f)
		case "shadow_mode":
			d.ShadowMode = new(p.bool(path, f))
		case "quota_mode":
			d.QuotaMode = p.bool(path, f)
		case "detailed_metric":
			d.DetailedMetric = new(p.bool(path, f))
		case "value_to_metric":
			d.ValueToMetric = p.bool(path, f)
		case "share_threshold":
			d.ShareThreshold = p.bool(path, f)
		case "metadata":
			d.Metadata = p.metadata(path, f, d.Metadata)
		case "charge":
			d.FirstWithRoom = p.choice(path, f, []string{"first_with_room"}) != ""
		case "denied_response":
			d.Denied = p.deniedResponse(path, f)
		default:
			p.reportUnknownField(path, descriptorFields, f)
		}
	}
	if d.Set != nil {
		p.checkValueSet(path, fields, &d)
	}
	if single != nil {
		limit, ok := p.finishLimit(single)
		if several != nil {
			p.fail(path, several.key,
				`"rate_limit" and "rate_limits" exclude each other; move rate_limit into the list`)
		} else if ok {
			d.RateLimits = []rules.Limit{limit}
		}
	}
	p.warnWithoutLimit(path, fields, &d)
	return d
}

// warnWithoutLimit warns of fields that modify a limit on a node without one: as in
// envoyproxy/ratelimit, nodes below do not inherit them.
func (p *parser) warnWithoutLimit(path string, fields []field, d *rules.Descriptor) {
	if slices.ContainsFunc(fields, func(f field) bool { return f.name == "rate_limit" || f.name == "rate_limits" }) {
		return
	}
	for _, f := range fields {
		if f.name == "shadow_mode" && *d.ShadowMode || f.name == "quota_mode" && d.QuotaMode ||
			f.name == "detailed_metric" && *d.DetailedMetric || f.name == "denied_response" {
			p.warn(rules.NoEffect, path, f.key, "%q has no effect on a descriptor without a limit, nor on those below it; set it next to rate_limit or rate_limits", f.name)
		}
	}
}

// intern returns one copy of equal texts, to save memory.
func (p *parser) intern(text string) string {
	if same, ok := p.texts[text]; ok {
		return same
	}
	p.texts[text] = text
	return text
}

// descriptorPath returns the path of a descriptor by key and value, or by index if it has no key.
func descriptorPath(parent, numbered string, fields []field) string {
	l := rules.Level{Key: lastText(fields, "key"), Value: lastText(fields, "value")}
	if l.Key == "" {
		return numbered
	}
	return l.Below(parent)
}
