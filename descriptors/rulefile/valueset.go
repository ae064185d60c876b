package rulefile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// hasField reports whether there is a field with one of the names.
func hasField(fields []field, names ...string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return slices.Contains(names, f.name) })
}

// valueSet reads the fields values, cidr and prefix into d.Set.
func (p *parser) valueSet(path string, f field, d *rules.Descriptor) {
	if d.Set == nil {
		d.Set = &rules.ValueSet{}
	}
	switch f.name {
	case "values":
		p.eachText(path, f, "[free, trial]", func(here string, item field, text string) {
			switch {
			case text == "":
				p.fail(here, item.value, "an item of values is empty; remove it, or use the key alone for any value")
			case strings.Contains(text, "*"):
				p.fail(here, item.value, `%q has a "*"; use "value" in a descriptor of its own for a wildcard`,
					rules.Shorten(text))
			default:
				d.Set.Values = append(d.Set.Values, rules.SetValue{Text: text, Pos: p.pos(item.value)})
			}
		})
	case "cidr":
		if f.value.Kind == yaml.MappingNode {
			p.rangeFile(path, f, d.Set)
			return
		}
		p.eachText(path, f, "[10.0.0.0/8, 2001:db8::/32]", func(here string, item field, text string) {
			r, err := rules.ParseRange(text)
			if err != nil {
				p.fail(here, item.value, "%v", err)
				return
			}
			d.Set.Ranges = append(d.Set.Ranges, rules.Range{Prefix: r, Pos: p.pos(item.value)})
		})
	case "prefix":
		d.Set.Prefix = p.prefixLengths(path, f)
	}
}

// rangeFile reads the map of the field cidr.
func (p *parser) rangeFile(path string, f field, set *rules.ValueSet) {
	path = rules.Below(path, f.name)
	for _, g := range p.fields(path, f.value, fieldName) {
		if g.name != "file" {
			p.reportUnknownField(path, cidrFields, g)
			continue
		}
		set.File, _ = p.text(path, g)
		set.FilePos = p.pos(g.value)
		p.rangeFiles = append(p.rangeFiles, set.File)
	}
	if set.File == "" {
		p.fail(path, f.value, `"file" is missing or empty; it names a file with one range on each line, or write a list, such as [10.0.0.0/8]`)
	}
}

// eachText reads a list of texts and calls visit for every item. example is such a list.
func (p *parser) eachText(path string, f field, example string, visit func(here string, item field, text string)) {
	path = rules.Below(path, f.name)
	switch {
	case f.value.Kind != yaml.SequenceNode:
		p.fail(path, f.value, "%q must be a list, such as %s, not %s", f.name, example, kindName(f.value))
	case len(f.value.Content) == 0:
		p.fail(path, f.value, "%q is an empty list, which matches nothing; add an item, or remove it",
			f.name)
	}
	if f.value.Kind != yaml.SequenceNode || !p.enter(f.value) {
		return
	}
	defer p.leave()
	for _, at := range f.value.Content {
		if p.stopped {
			return
		}
		item := field{name: "item of " + f.name, key: at, value: p.resolveAlias(at), at: at}
		if text, ok := p.text(path, item); ok {
			visit(path, item, text)
		}
	}
}

// prefixLengths reads the field prefix. A missing length is that of a single address.
func (p *parser) prefixLengths(path string, f field) *rules.PrefixLengths {
	path = rules.Below(path, f.name)
	lengths := &rules.PrefixLengths{V4: 32, V6: 128}
	fields, _ := p.mapFields(path, f, "{ v4: 24, v6: 64 }")
	for _, g := range fields {
		switch g.name {
		case "v4":
			n, _ := p.number(path, g, 1, 32)
			lengths.V4 = int(n)
		case "v6":
			n, _ := p.number(path, g, 1, 128)
			lengths.V6 = int(n)
		default:
			p.reportUnknownField(path, prefixFields, g)
		}
	}
	return lengths
}

// checkValueSet reports fields of a descriptor that exclude each other.
func (p *parser) checkValueSet(path string, fields []field, d *rules.Descriptor) {
	selects := p.checkOneSelects(path, fields)
	for _, f := range fields {
		switch {
		case f.name == "prefix" && len(selects) > 0 && selects[0].name != "cidr":
			p.fail(path, f.key, `"prefix" is for "cidr" or for the key alone, not for %q; remove one of them`,
				selects[0].name)
		case f.name == "prefix" && d.ShareThreshold:
			p.fail(path, f.key,
				`"prefix" makes a counter for each network and "share_threshold" one for all; remove one of them`)
		case (f.name == "values" || f.name == "cidr" || f.name == "prefix") && strings.Contains(d.Key, "*"):
			p.fail(path, f.key, `%q requires a key without "*", not %q`, f.name, rules.Shorten(d.Key))
		}
	}
}

// checkOneSelects reports all but the first of the fields value, values and cidr, and returns them.
func (p *parser) checkOneSelects(path string, fields []field) (selects []field) {
	for _, f := range fields {
		if f.name == "value" || f.name == "values" || f.name == "cidr" {
			selects = append(selects, f)
		}
	}
	for i := 1; i < len(selects); i++ {
		p.fail(path, selects[i].key, `%q and %q exclude each other; remove one of them`, selects[0].name,
			selects[i].name)
	}
	return selects
}
