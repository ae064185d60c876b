package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// reportNoFilter reports why there is no filter to check. It is an error only if the files are complete.
func (k *checker) reportNoFilter() {
	c := k.config
	switch {
	case len(c.uncheckedFilters) > 0:
		k.report(Unknown, rules.Note, c.uncheckedFilters[0].Pos(), "this is the only rate limit filter, and it is not checked: only filters in http_filters of a connection manager are, and those of config_discovery whose resource, or the output of /config_dump, is passed, too")
	case len(c.localFilters) > 0:
		k.report(Unknown, rules.Note, c.localFilters[0].Pos(),
			"all rate limit filters are local and do not call a service")
	case c.fragments != nil && !slices.ContainsFunc(c.managers, hasMisplacedFilter):
		k.report(Unknown, rules.Warning, c.fragments.node.Pos(), "no file contains a rate limit filter, so nothing is checked: also pass its listener, or the output of /config_dump")
	case c.fragments != nil:
	case !c.allListeners && (len(c.managers) == 0 || c.listenerSource.Exists()):
		at := c.listenerSource
		if !at.Exists() {
			at = c.roots[0]
		}
		k.report(Unknown, rules.Note, at.Pos(), "no listener in these files has a rate limit filter, but the files do not contain all listeners: pass the output of /config_dump")
	default:
		k.report(Domain, rules.Error, rules.Pos{}, "no listener has a rate limit filter before its router, so Envoy never calls the service: add one to http_filters")
	}
}

// hasMisplacedFilter reports whether a rate limit filter is after the router, which is already reported.
func hasMisplacedFilter(m *manager) bool {
	return slices.ContainsFunc(m.filters, func(f *filter) bool { return f.typeName == api.RateLimit })
}
