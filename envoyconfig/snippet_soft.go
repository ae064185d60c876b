package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// softRoute is a route for requests above a soft limit.
type softRoute struct{ Name, Rule string }

// SoftSnippet returns routes for the requests that exceed a soft limit of a domain or reach a notify_at, and the filter
// that these routes need. It returns an error if no limit of the domain has the field soft or notify_at.
func SoftSnippet(set *descriptors.Set, domain string, target Target) (string, error) {
	limits := set.Reporting(domain)
	if len(limits) == 0 {
		return "", fmt.Errorf("no limit of domain %q has soft or notify_at, so there is nothing to route by; "+
			"add soft: true to a limit", rules.Shorten(domain))
	}
	var routes []softRoute
	for _, l := range limits {
		name := strconv.Quote(string(rules.AppendSoftName(nil, l.Name)))
		if !slices.ContainsFunc(routes, func(r softRoute) bool { return r.Name == name }) {
			routes = append(routes, softRoute{name, fmt.Sprintf("%s at %v", rules.Shorten(l.Rule.Path()), l.Pos)})
		}
	}
	if target != "" && target != EnvoyTarget {
		slices.Reverse(routes) // each is put before those of the previous patches
	}
	return renderSnippet("soft ", target, map[string]any{"Routes": routes}), nil
}
