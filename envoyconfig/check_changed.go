package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Envoy builds end-of-stream descriptors from the request headers as the router has rewritten them for the upstream.

// hostRewrites and pathRewrites are the RouteAction fields that change :authority and :path.
var (
	hostRewrites = []string{"host_rewrite_literal", "auto_host_rewrite", "host_rewrite_header", "host_rewrite_path_regex"}
	pathRewrites = []string{"prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite"}
)

// checkChangedHeaders checks that the route does not change the headers that end-of-stream descriptors read.
func (k *checker) checkChangedHeaders(p filterPolicy, t *table, h *virtualHost, r *route) {
	if !p.streamDone {
		return
	}
	for _, a := range p.actions {
		for _, header := range a.headers() {
			if by := headerChange(header, t, h, r); by.Exists() {
				k.report(Changed, rules.Error, a.node.Pos(), "the route changes %s, at %v, before the stream ends, so this descriptor differs at the end or is missing: "+
					"use a header that does not change, such as a copy made by an earlier filter", header, by.Pos())
			}
		}
	}
}

// headers returns the headers that an action reads, in lower case.
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

// headerChange returns the field of a route that changes the header, or missing.
func headerChange(header string, t *table, h *virtualHost, r *route) *tree.Node {
	fields := map[string][]string{":path": pathRewrites, ":authority": hostRewrites, "host": hostRewrites}[header]
	for _, name := range fields {
		if by := r.action.Field(name); by.Exists() && by.Text != "false" {
			return by
		}
	}
	for _, level := range configLevels(t, h, r) {
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
