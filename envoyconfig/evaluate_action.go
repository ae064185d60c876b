package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// evaluateAction evaluates an action.
func (m *manager) evaluateAction(f *filter, p filterPolicy, a *action, h *virtualHost, r *route) evaluatedEntry {
	e := evaluatedEntry{form: a.form, source: strings.ReplaceAll(a.kind, "_", " ")}
	if e.form.anyValue && e.form.value != "" { // a format string
		e.source = e.form.value
		e.form.anyValue = a.formatted || m.runtime == nil || m.runtime.mayFormatValues()
	}
	switch a.kind {
	case "request_headers":
		name := a.header()
		e.source = name + " header"
		e.never = m.impossibleHeader(f, name)
		if !slices.Contains(alwaysPresent, name) {
			e.condition = withHeader(name)
		}
	case "query_parameters":
		name := a.node.Field("query_parameter_name").Text
		e.source = "query parameter " + name
		e.condition = "with the query parameter " + rules.Shorten(name)
	case "header_value_match":
		e.condition = "whose headers match"
		if a.node.Field("expect_match").Bool(true) {
			for n := range a.node.Field("headers").Elements() {
				e.never = cmp.Or(m.impossibleMatch(f, n), e.never)
				if !p.own && e.never == "" {
					e.never = m.impossibleAuthority(f, h, n)
				}
			}
		} else {
			e.condition = "whose headers do not match"
			if always := a.node.Field("headers"); len(always.Nodes) > 0 && allElements(always, isAlwaysPresent) {
				e.never = "expect_match is false, but every request has these headers"
			}
		}
	case "query_parameter_value_match":
		e.condition = "whose query matches"
	case "masked_remote_address":
		if v4, v6 := a.node.Field("v4_prefix_mask_len").Uint(32), a.node.Field("v6_prefix_mask_len").Uint(128); v4 != 32 || v6 != 128 {
			e.source = fmt.Sprintf("network /%d or /%d of the address", v4, v6)
		}
	case "remote_address_match":
		e.condition = "whose address matches"
		matcher := a.node.Field("address_matcher")
		if len(matcher.Field("ranges").Nodes) == 0 && !matcher.Field("invert_match").Bool(false) {
			e.never = "address_matcher has no ranges, so no address matches"
		}
	case "metadata", "dynamic_metadata":
		m.evaluateMetadata(f, p.policy, a, r, &e)
	case expression:
		text := strings.TrimSpace(a.node.Field("text").Text)
		e.source = strings.TrimSpace("expression " + text)
		e.condition = "for which the expression has a value"
		e.never = impossibleExpression(text)
	case "":
		e.source = "?"
		e.condition = "for which an action that sluice does not support makes an entry"
	}
	return e
}

// evaluateMetadata evaluates an action that reads metadata of another filter or of the route.
func (m *manager) evaluateMetadata(f *filter, p *policy, a *action, r *route, e *evaluatedEntry) {
	at := a.node.Field("metadata_key")
	name := metadataName(at)
	e.source = "metadata " + name
	switch source := metadataSource(a.node); source {
	case "ROUTE_ENTRY":
		value := entryMetadata(r.node, at)
		switch {
		case value != "":
			e.form.value = value
			e.form.anyValue = false
		case !m.fragments && !r.fragment:
			e.never = fmt.Sprintf("the route, at %v, has no text in its metadata %s", r.node.Pos(), name)
		}
	case "DYNAMIC":
		e.condition = "with the metadata " + rules.Shorten(name)
		if f != nil {
			e.origin = m.originOf(f, at, p.streamDone, true)
			e.never = e.origin.whyUnset
			if by := f.verifierOf(m, at); e.never == "" && by != nil && !by.verifiesTokensOf(r) {
				e.never = fmt.Sprintf("the rules of the filter at %v verify no token on the route at %v", by.node.Pos(),
					r.node.Pos())
			}
		}
	case "CLUSTER_LOCALITY_ENTRY":
		e.condition = "whose upstream locality has the metadata " + rules.Shorten(name)
		if !p.streamDone {
			e.never = "CLUSTER_LOCALITY_ENTRY has no value before Envoy has selected an upstream host: use another source"
		}
	default:
		e.source += " of the cluster"
		e.condition = "whose cluster has the metadata " + rules.Shorten(name)
		if m.allClusters && !anyClusterHas(m.clusters, at) {
			e.never = "no cluster has a text in its metadata " + name
		}
	}
	if byDefault := a.node.Field("default_value").Text; e.never != "" && byDefault != "" {
		e.form.value = byDefault
		e.form.anyValue = false
	}
}

// anyClusterHas reports whether a cluster has a text in its metadata at a key.
func anyClusterHas(clusters map[string]*tree.Node, at *tree.Node) bool {
	for _, n := range clusters {
		if entryMetadata(n, at) != "" {
			return true
		}
	}
	return false
}

// impossibleMatch returns why no request satisfies a header matcher; empty if one may.
func (m *manager) impossibleMatch(f *filter, n *tree.Node) string {
	name := strings.ToLower(n.Field("name").Text)
	present := n.Field("present_match")
	inverted := n.Field("invert_match").Bool(false)
	absent := n.Field("treat_missing_header_as_empty").Bool(false) || present.Exists() && present.Bool(true) == inverted
	text := exactText(n).Text
	r := n.Field("range_match")
	switch {
	case inverted && absent:
		return ""
	case inverted:
		return m.impossibleHeader(f, name)
	case strings.TrimSpace(text) != text:
		return "no header has spaces at the ends of its value"
	case r.Exists() && r.Field("start").Text == r.Field("end").Text:
		return "the range_match of the header " + name + " is empty, since it excludes its end"
	}
	why := ""
	if !absent {
		why = m.impossibleHeader(f, name)
	}
	if why == "" && text != "" {
		why = impossibleValue("request_headers", name, text)
	}
	return why
}

// impossibleAuthority returns why no request of a virtual host satisfies a matcher of the authority; empty if one may.
func (m *manager) impossibleAuthority(f *filter, h *virtualHost, n *tree.Node) string {
	name := strings.ToLower(n.Field("name").Text)
	want := exactText(n).Text
	if name != ":authority" && name != "host" || want == "" || n.Field("invert_match").Bool(false) || m.fragments ||
		len(h.domains) == 0 ||
		m.table.node.Field("vhost_header").Exists() || m.mayAddHeader(f, ":authority") ||
		h.hasAuthority(m.table, want) {
		return ""
	}
	return fmt.Sprintf("no request of the virtual host %s has the authority %s, which matches none of its domains",
		rules.Shorten(h.name), rules.Shorten(want))
}

// findContradictions finds entries that no request has together.
func (e *evaluation) findContradictions() {
	type match struct {
		matcher uint64 // hash of the matchers
		expect  bool
	}
	seen := map[match]*tree.Node{}
	exact := map[string]*tree.Node{} // matchers of headers that compare with one text
	for _, a := range e.actions {
		lists := map[string]string{"header_value_match": "headers", "query_parameter_value_match": "query_parameters"}
		matchers := a.node.Field(lists[a.kind])
		if !matchers.Exists() {
			continue
		}
		expect := a.node.Field("expect_match").Bool(true)
		m := match{matchers.Hash(), expect}
		if other := seen[match{m.matcher, !m.expect}]; other != nil {
			why := fmt.Sprintf("no request has both this entry and the one at %v, which requires the opposite",
				other.Pos())
			e.fail(NoEffect, rules.Error,
				a.node, "%s, so the descriptor is never sent: use a separate list of actions "+
					"for each", why)
			e.never = why
		}
		seen[m] = a.node
		for n := range matchers.Elements() {
			want := n.Field("name").Text
			text := exactText(n)
			if !expect || !text.Exists() || n.Field("invert_match").Bool(false) {
				continue
			}
			if other := exact[a.kind+want]; other != nil && other.Text != text.Text {
				e.neverSend(text, fmt.Sprintf("no request has both this value of %s and the one at %v",
					rules.Shorten(want), other.Pos()))
			}
			exact[a.kind+want] = text
		}
	}
}

// exactText returns the text with which a matcher compares, or missing. With ignore_case others match too.
func exactText(n *tree.Node) *tree.Node {
	if at := n.Field("exact_match"); at.Exists() {
		return at
	}
	if n.At("string_match", "ignore_case").Bool(false) {
		return &tree.Missing
	}
	return n.At("string_match", "exact")
}

// checkValue finds values that mislead, or that a later filter sets.
func (m *manager) checkValue(e *evaluation, i int) {
	a := e.actions[i]
	if text := strings.TrimSpace(a.node.Field("text").Text); a.kind == expression &&
		slices.Contains([]string{"source.address", "source.port", "request.id"}, text) {
		e.fail(NoEffect, rules.Warning, a.node, "%s differs for each connection or request, so each has its own counter, and no limit denies it: use remote_address, or a header that names the client", text)
	}
	if typeName, _ := a.node.At("extension", "typed_config").Typed(); strings.HasPrefix(typeName,
		"envoy.type.matcher.v3.HttpResponse") {
		e.fail(NoEffect, rules.Warning,
			a.node, "the entry never has a value: %s reads the response, but Envoy gives extensions "+
				"of rate_limits only the request's headers", strings.TrimPrefix(typeName, "envoy.type.matcher.v3."))
	}
	if at := a.node.Field("descriptor_value"); a.form.anyValue && at.Text != "" && !e.entries[i].form.anyValue {
		e.fail(NoEffect, rules.Note, at, "Envoy sends this text as it is, unless the runtime has %s: use request_headers for the value of a header", formatterFeature)
	}
	for n := range a.node.Field("headers").Elements() {
		name := strings.ToLower(n.Field("name").Text)
		isPlain := m.setsPlainScheme(name) && !m.mayAddHeader(e.limiter, name)
		if isPlain && a.node.Field("expect_match").Bool(true) && !n.Field("invert_match").Bool(false) &&
			exactText(n).Text == "https" {
			e.fail(NoEffect, rules.Warning, n, "%s is http, since the listener accepts no TLS, unless a client of HTTP/2 sends another: remove this matcher, or set use_remote_address: false behind a proxy with TLS", name)
		}
	}
	if a.kind != "request_headers" || e.limiter == nil {
		return
	}
	if a.header() == "x-request-id" {
		e.fail(NoEffect, rules.Warning, a.node, "x-request-id differs for each request, so each request has its own "+
			"counter, and no limit denies it: use a header that names the client")
	}
	if later := m.headerSetAfter(e.limiter, a.header()); later != nil {
		e.fail(NoEffect, rules.Warning, a.node, "the filter that sets the header %s, at %v, runs after the rate limit "+
			"filter, which reads the client's value: put it before",
			rules.Shorten(a.header()), later.node.Pos())
	}
}
