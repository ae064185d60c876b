package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Envoy makes the descriptors for the end of a stream from the request's headers as they are by then: the router has
// changed them for the upstream.

// hostRewrites and pathRewrites are the fields of a route's action that change :authority and :path.
var (
	hostRewrites = []string{"host_rewrite_literal", "auto_host_rewrite", "host_rewrite_header", "host_rewrite_path_regex"}
	pathRewrites = []string{"prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite"}
)

// checkChangedHeaders holds that what the descriptors for the end of a stream are made of is not changed by the route before.
func (k *checker) checkChangedHeaders(p candidate, t *table, h *virtualHost, r *route) {
	if !p.streamDone {
		return
	}
	for _, a := range p.actions {
		for _, header := range a.headers() {
			if by := headerChange(header, t, h, r); by.Exists() {
				k.report(Changed, rules.Error, a.node.Pos(), "the route changes %s, at %v, before the stream ends, so that this descriptor is another by then, or none: "+
					"make the entry from a header that stays, such as one that a filter before this one copies it to", header, by.Pos())
			}
		}
	}
}

// headers returns the headers that an action looks at, in lower case.
func (a *action) headers() []string {
	switch a.kind {
	case "request_headers":
		return []string{a.header()}
	case "header_value_match":
		return tree.Map(a.node.Field("headers"), func(n *tree.Node) string { return strings.ToLower(n.Field("name").Text) })
	default:
		return nil
	}
}

// headerChange returns the field that changes a header on a route, or a missing one.
func headerChange(header string, t *table, h *virtualHost, r *route) *tree.Node {
	fields := map[string][]string{":path": pathRewrites, ":authority": hostRewrites, "host": hostRewrites}[header]
	for _, name := range fields {
		if by := r.action.Field(name); by.Exists() && by.Text != "false" {
			return by
		}
	}
	for _, level := range levels(t, h, r) {
		for name := range level.Field("request_headers_to_remove").Elements() {
			if strings.ToLower(name.Text) == header {
				return name
			}
		}
		for added := range level.Field("request_headers_to_add").Elements() {
			how := added.Field("append_action").Enum("APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS")
			overwrites := slices.Contains([]string{"OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS"}, how) || added.Field("append").Text == "false"
			if strings.ToLower(added.At("header", "key").Text) == header && overwrites {
				return added
			}
		}
	}
	return &tree.Missing
}
