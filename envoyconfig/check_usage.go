package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// usageHeaders are the request headers that name the counters at /usage.
var usageHeaders = []string{"x-sluice-domain", "x-sluice-descriptor"}

// checkUsage warns if clients can choose the usage headers of a route to /usage: of one that adds a
// usage header, or of another route to the same cluster.
func (k *checker) checkUsage(m *manager) {
	if m.table == nil || !k.isFirst(m, "usage") {
		return
	}
	type usageRoute struct {
		*route

		added  *tree.Node // the element that adds a usage header
		chosen string     // a usage header that clients can choose
	}
	var all []usageRoute
	usageClusters := map[string]bool{} // clusters of routes that add a usage header
	for _, h := range m.table.hosts {
		for _, r := range h.routes {
			u := usageRoute{route: r}
			for _, header := range usageHeaders {
				for _, level := range configLevels(m.table, h, r) {
					for n := range level.Field("request_headers_to_add").Elements() {
						if u.added == nil && strings.EqualFold(n.At("header", "key").Text, header) {
							u.added = n
						}
					}
				}
				if !headerChange(header, m.table, h, r).Exists() && !m.strips(header) && !m.removes(header) {
					u.chosen = header
				}
			}
			all = append(all, u)
			if cluster := r.action.Field("cluster").Text; u.added != nil && cluster != "" {
				usageClusters[cluster] = true
			}
		}
	}
	for _, u := range all {
		const remedy = "add both headers to request_headers_to_remove, which Envoy applies before request_headers_to_add"
		switch {
		case u.chosen == "":
		case u.added != nil:
			k.report(Usage, rules.Warning, u.added.Pos(),
				"clients can read the usage of others, since the header %s of their requests is kept: %s", u.chosen, remedy)
		case usageClusters[u.action.Field("cluster").Text]:
			k.report(Usage, rules.Warning, u.node.Pos(),
				"the cluster of this route serves /usage, and clients can choose the header %s: %s", u.chosen, remedy)
		}
	}
}

// removes reports whether a filter removes a header from requests.
func (m *manager) removes(header string) bool {
	return slices.ContainsFunc(m.filters, func(f *filter) bool {
		return f.typeName == headerMutation && !f.disabled &&
			removesHeader(f.config.At("mutations", "request_mutations"), header)
	})
}
