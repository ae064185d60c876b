package envoyconfig

import (
	"strings"
	"testing"
)

// TestCheckStreamedCost covers filters that read a cost from one kind of responses only, or from both.
func TestCheckStreamedCost(t *testing.T) {
	const (
		rule = "{ selectors: [{ key: usage }, { key: total }], on_present: { metadata_namespace: llm, key: total } }"
		json = "{ name: json, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata, response_rules: { rules: [" + rule + "] } } }"
		sse  = "{ name: sse, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata, response_rules: { content_parser: { name: json, typed_config: { '@type': type.googleapis.com/envoy.extensions.content_parsers.json.v3.JsonContentParser, rules: [{ rule: " + rule + " }] } } } } }"
		lua  = "{ name: lua, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: { filename: a.lua } } }"
		cors = "{ name: cors, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }"
		own  = "[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], hits_addend: { format: '%DYNAMIC_METADATA(llm:total)%' }, apply_on_stream_done: true }]"

		onlyComplete = "reads this cost from complete responses only, and streamed ones charge nothing: add a filter sse_to_metadata that also sets llm:total "
		onlyStreamed = "reads this cost from streamed responses only, and complete ones charge nothing: add a filter json_to_metadata that also sets llm:total "
	)
	replace := strings.NewReplacer
	for name, tt := range map[string]struct {
		filters []string
		change  *strings.Replacer
		more    string // another file
		want    string
	}{
		"both":                             {filters: []string{json, sse}},
		"complete only":                    {filters: []string{json}, want: onlyComplete},
		"complete only, and another":       {filters: []string{cors, json}, want: onlyComplete},
		"streamed only":                    {filters: []string{sse}, want: onlyStreamed},
		"streamed, but another key":        {filters: []string{json, strings.ReplaceAll(sse, "key: total }", "key: other }")}, want: onlyComplete},
		"streamed, in another namespace":   {filters: []string{json, strings.ReplaceAll(sse, "llm", "other")}, want: onlyComplete},
		"streamed, but disabled":           {filters: []string{json, strings.Replace(sse, "{ name", "{ disabled: true, name", 1)}, want: onlyComplete},
		"streamed, but not here":           {filters: []string{json, sse}, change: replace("route: {", "typed_per_filter_config: { sse: { '@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true } }, route: {"), want: onlyComplete},
		"code, which may set it":           {filters: []string{json, lua}},
		"code without the filter":          {filters: []string{lua}},
		"no filter":                        {filters: []string{cors}},
		"a default for other responses":    {filters: []string{strings.Replace(json, "key: total } }", "key: total }, on_error: { metadata_namespace: llm, key: total, value: 500 } }", 1)}},
		"a default of 0":                   {filters: []string{strings.Replace(json, "key: total } }", "key: total }, on_error: { metadata_namespace: llm, key: total, value: 0 } }", 1)}, want: onlyComplete},
		"requests, not responses":          {filters: []string{strings.ReplaceAll(json, "response_rules", "request_rules")}},
		"for some routes":                  {filters: []string{json}, change: replace("route: {", "typed_per_filter_config: { json: { '@type': type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata, response_rules: { rules: ["+rule+"] } } }, route: {")},
		"gRPC":                             {filters: []string{json}, change: replace("prefix: /", "prefix: /, grpc: {}")},
		"a redirect":                       {filters: []string{json}, change: replace("route: { cluster: backend }", "redirect: { host_redirect: a }")},
		"before the request":               {filters: []string{json}, change: replace(", apply_on_stream_done: true", "")},
		"where hits are dropped":           {filters: []string{json}, change: replace("\n                rate_limits: "+own, "", "routes:", "rate_limits: "+own+"\n                routes:")},
		"another cost":                     {filters: []string{json}, change: replace("%DYNAMIC_METADATA(llm:total)%", "%BYTES_SENT%")},
		"the default namespaces":           {filters: []string{strings.ReplaceAll(json, "metadata_namespace: llm, ", "")}, change: replace("llm:total)", "envoy.filters.http.json_to_metadata:total)"), want: strings.Replace(onlyComplete, "llm:", "envoy.filters.http.json_to_metadata:", 1)},
		"the default namespace of streams": {filters: []string{strings.ReplaceAll(sse, "metadata_namespace: llm, ", "")}, change: replace("llm:total)", "envoy.content_parsers.json:total)"), want: strings.Replace(onlyStreamed, "llm:", "envoy.content_parsers.json:", 1)},
		"a filter of a cluster may set it": {filters: []string{json}, more: "static_resources: { clusters: [{ name: backend, typed_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: { http_protocol_options: {} }, http_filters: [" + lua + "] } } }] }"},
		"no filter of a cluster":           {filters: []string{json}, more: "static_resources: { clusters: [{ name: backend }] }", want: onlyComplete},
		"acknowledged":                     {filters: []string{json}, change: replace("apply_on_stream_done: true }]", "apply_on_stream_done: true }] # sluice:allow streamed-cost")},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(completeListener, "http_filters:\n", "http_filters:\n            - "+strings.Join(tt.filters, "\n            - ")+"\n", 1)
			text = strings.Replace(text, "cluster_header: x-backend", "cluster: backend", 1)
			text = strings.Replace(text, "domain: shop", "domain: shop\n                timeout: 1s\n                rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: backend } } }\n                rate_limits: "+own, 1)
			if tt.change != nil {
				text = tt.change.Replace(text)
			}
			files := []File{{"envoy.yaml", []byte(text)}}
			if tt.more != "" {
				files = append(files, File{"more.yaml", []byte(tt.more)})
			}
			c, err := Read(files)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var got []string
			for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1, count_refused: true } }]\n")) {
				if f.Code == StreamedCost {
					got = append(got, f.String())
				}
			}
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "envoy.yaml:") || !strings.Contains(got[0], tt.want)) {
				t.Errorf("findings are %q, want %q in\n%s", got, tt.want, text)
			}
		})
	}
}
