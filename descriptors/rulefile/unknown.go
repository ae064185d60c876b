package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// reportUnknownField reports a field that a map cannot have. Fields of envoyproxy/ratelimit have no
// effect there and are warnings only, except in maps that only defaults have. It returns the field that
// was likely meant, so that it is not reported as missing, too.
func (p *parser) reportUnknownField(path string, v fieldSet, f field) (meant string) {
	home := fieldSetsOf(f.name)
	ofDefaults := !slices.ContainsFunc(fieldSets(), func(other fieldSet) bool { return other.where == v.where })
	switch {
	case ofDefaults && slices.Contains(defaultsRootFields.names, f.name):
		p.fail(path, f.key, "%q is not allowed %s; it belongs %s", f.name, v.where, defaultsRootFields.where)
	case ofDefaults && len(home) > 0:
		p.fail(path, f.key, "%q is not allowed %s; it is for rules", f.name, v.where)
	case slices.Contains(referenceFields, f.name):
		p.warn(rules.NoEffect, path, f.key, "%q has no effect %s; it belongs %s", f.name, v.where, whereText(home))
	case len(home) > 0:
		p.fail(path, f.key, "%q is not allowed %s; it belongs %s", f.name, v.where, whereText(home))
	default:
		message := fmt.Sprintf("unknown field %q %s", rules.Shorten(f.name), v.where)
		if meant = rules.Suggest(f.name, v.names); meant != "" {
			message += fmt.Sprintf("; did you mean %q?", meant)
		} else if s := rules.Suggest(f.name, knownFields()); s != "" && !ofDefaults {
			message += fmt.Sprintf("; did you mean %q, which belongs %s?", s, whereText(fieldSetsOf(s)))
		}
		p.fail(path, f.key, "%s (allowed: %s)", message, strings.Join(v.names, ", "))
	}
	return meant
}

func knownFields() []string {
	var all []string
	for _, v := range fieldSets() {
		all = append(all, v.names...)
	}
	return all
}

func whereText(vs []fieldSet) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.where
	}
	return strings.Join(names, " or ")
}
