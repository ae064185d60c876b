package rulefile

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// exemptions reads the field exempt. Items are descriptors with a key and one of value, values and
// cidr.
func (p *parser) exemptions(path string, f field) (all []rules.Descriptor) {
	p.eachMap(path, f, "a list of maps", `an item of exempt must be a map, such as { key: remote_address, cidr: [10.0.0.0/8] }`, func(here string, at, m *yaml.Node) {
		fields := p.fields(here, m, fieldName)
		d := rules.Descriptor{Pos: p.pos(at)}
		keyOK := true
		for _, g := range fields {
			switch g.name {
			case "key":
				d.Key, keyOK = p.text(here, g)
			case "value":
				var ok bool
				if d.Value, ok = p.text(here, g); ok && d.Value == "" {
					p.fail(here, g.value, `"value" is empty; write "*" for any value`)
				}
			case "values", "cidr":
				p.valueSet(here, g, &d)
			default:
				keyOK = p.reportUnknownField(here, exemptFields, g) != "key" && keyOK
			}
		}
		switch {
		case !keyOK:
		case d.Key == "":
			p.fail(here, at, `"key" is missing or empty; it names the entry that exempts requests`)
		case strings.Contains(d.Key, "*"):
			p.fail(here, at, `"key" requires a key without "*", not %q; add an item for each key`, rules.Shorten(d.Key))
		}
		if !hasField(fields, "value", "values", "cidr") {
			p.fail(here, at, `one of "value", "values" and "cidr" is required, to name what is exempt`)
		}
		p.checkOneSelects(here, fields)
		all = append(all, d)
	})
	return all
}
