package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkHits checks that limits count the hits sent at the end of a stream.
func (k *checker) checkHits(e *evaluation, reach *descriptors.Reach) {
	if !e.streamDone {
		return
	}
	for _, r := range reach.Rules {
		_, key := e.hitsKey()
		if names := leaseNames(r); slices.Contains(names, leaseLimit(key, names)) {
			continue
		}
		least := e.limitBelowHits(r)
		for _, l := range r.Limits {
			switch {
			case r.Unlimited || l.Policy.CountRefused || l.Policy.UsesLeases():
			case least != nil:
				k.report(UncountedHits, rules.Error, e.node.Pos(), "%s at %v is never charged: %s at the end of a stream exceed the limit at %v, which allows %d: set count_refused: true",
					r.Path(), l.Pos, e.hits.text, least.Pos, least.Policy.Capacity())
			default:
				k.report(UncountedHits, rules.Warning, e.node.Pos(), "hits sent at the end of a stream have already happened, but %s at %v does not count them once it is over its limit: set count_refused: true", r.Path(), l.Pos)
			}
		}
	}
}

// limitBelowHits returns a limit of the rule that is lower than the number of hits sent. Such a limit denies every
// request, so that no limit of the rule is charged. It returns nil if there is none; a limit of 0 is meant to deny.
func (e *evaluation) limitBelowHits(r *descriptors.Rule) *descriptors.Limit {
	if e.node.Field("limit").Exists() ||
		slices.ContainsFunc(r.Limits, func(l *descriptors.Limit) bool { return l.Table != nil }) {
		return nil // other numbers apply
	}
	for _, l := range r.Limits {
		if most := l.Policy.Capacity(); !l.Policy.UsesLeases() && 0 < most && most < e.hits.number {
			return l
		}
	}
	return nil
}

// checkActions checks for actions whose values are misleading.
func (k *checker) checkActions(m *manager, p filterPolicy) {
	for _, a := range p.actions {
		switch a.kind {
		case "request_headers":
			switch a.header() {
			case "x-forwarded-for":
				k.report(SameAddress, rules.Warning, a.node.Pos(), "x-forwarded-for contains the value that the client sent, followed by its address, so a client can use any number of counters: "+
					"send remote_address or masked_remote_address")
			case ":path":
				k.report(QueryInKey, rules.Warning, a.node.Pos(), ":path includes the query, so each query string has its own counter: "+
					"send a generic_key from a route for each path, or a header without the query")
			}
		case "remote_address", "masked_remote_address", "remote_address_match":
			k.checkAddress(m, a.node)
		}
	}
}

// checkAddress checks that the connection manager can determine the client's address.
func (k *checker) checkAddress(m *manager, at *tree.Node) {
	n := m.node
	if m.fragments || n.Field("use_remote_address").Bool(false) || n.Field("xff_num_trusted_hops").Uint(0) > 0 ||
		n.Field("original_ip_detection_extensions").Exists() {
		return
	}
	k.report(SameAddress, rules.Warning,
		at.Pos(), "the address is the last one in x-forwarded-for, which any client can send, or else the peer's: "+
			"set use_remote_address: true at the edge, and xff_num_trusted_hops behind proxies (connection manager at %v)", n.Pos())
}

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
		return tree.Map(a.node.Field("headers"),
			func(n *tree.Node) string { return strings.ToLower(n.Field("name").Text) })
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
			how := added.Field("append_action").Enum("APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT",
				"OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS")
			overwrites := slices.Contains([]string{"OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS"}, how) ||
				added.Field("append").Text == "false"
			if strings.ToLower(added.At("header", "key").Text) == header && overwrites {
				return added
			}
		}
	}
	return &tree.Missing
}
