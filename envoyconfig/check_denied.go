package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkLimitHeaders reports a filter that adds headers with limits if sluice adds some, too.
func (k *checker) checkLimitHeaders(f *filter) {
	n := f.config.Field("enable_x_ratelimit_headers")
	if k.config.AddsLimitHeaders && n.Enum("OFF", "DRAFT_VERSION_03") != "OFF" {
		k.report(Denial, rules.Warning, n.Pos(), "clients get the limits twice, since sluice adds headers with them, too: remove this field, or --ratelimit-headers of serve")
	}
}

// checkDenials checks whether clients receive the denied_response of the filter's domain unchanged.
func (k *checker) checkDenials(m *manager, f *filter) {
	body := false
	contentType := false
	response := false
	for _, d := range append(k.set.DeniedResponses(f.domain()), rules.DeniedPreset(k.config.DeniedResponse)) {
		if !d.IsNone() {
			body = body || d.Body != nil
			contentType = contentType || d.ContentType != ""
			response = true
		}
	}
	if !response {
		return
	}
	if enforced := f.config.Field("filter_enforced"); contentType && enforced.Exists() &&
		!m.runtime.isAlways(enforced) {
		k.report(Denial, rules.Warning, enforced.Pos(), "filter_enforced may be below 100 %%, and Envoy then adds the headers of denied_response, with its content-type, to the upstream's response: to try out rules, use shadow_mode instead")
	}
	if body {
		k.checkLocalReplies(m)
	}
	for _, later := range m.after(f) {
		if later.typeName == filterTypes+"cors.v3.Cors" && !later.disabled {
			k.report(Denial, rules.Warning, later.node.Pos(), "the CORS filter is after the rate limit filter, so scripts in browsers cannot read denials, and preflight requests are limited: put it before")
		}
	}
	if m.table == nil || !k.isFirst(m, "denials") {
		return
	}
	for _, level := range m.table.levels() {
		for n := range level.Field("response_headers_to_add").Elements() {
			if key := n.At("header", "key"); strings.EqualFold(key.Text, "retry-after") {
				k.report(Denial, rules.Warning, key.Pos(), "denials have a second retry-after, since denied_response has one, "+
					"whatever the append_action: remove it")
			}
		}
	}
}

// checkLocalReplies reports formats that replace the body of denials.
func (k *checker) checkLocalReplies(m *manager) {
	replaces := func(format *tree.Node) bool {
		keeps := false
		format.Walk(func(n *tree.Node) { keeps = keeps || strings.Contains(n.Text, "%LOCAL_REPLY_BODY%") })
		return format.Exists() && !keeps
	}
	const text = "it replaces the body of denied_response: use %%LOCAL_REPLY_BODY%% in it%s"
	config := m.node.Field("local_reply_config")
	if format := config.Field("body_format"); replaces(format) {
		k.report(Denial, rules.Warning, format.Pos(), text, "")
	}
	for mapper := range config.Field("mappers").Elements() {
		status := mapper.At("filter", "status_code_filter", "comparison")
		if status.Exists() && status.Field("op").Enum("EQ", "GE", "LE") == "EQ" &&
			status.At("value", "default_value").Uint(0) != 429 {
			continue // not for denials
		}
		for _, name := range []string{"body", "body_format_override"} {
			if format := mapper.Field(name); replaces(format) {
				k.report(Denial, rules.Warning, format.Pos(), text, ", or restrict the mapper by its filter")
			}
		}
	}
}
