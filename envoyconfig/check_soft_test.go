package envoyconfig

import (
	"strings"
	"testing"
)

const softRules = `domain: shop
descriptors:
  - key: user
    rate_limits:
      - { name: hard, unit: hour, requests_per_unit: 20, notify_at: 0.9 }
      - { name: ' größe "a" ', unit: hour, requests_per_unit: 10, soft: true }
  - { key: path, rate_limit: { name: hard, unit: day, requests_per_unit: 20, notify_at: 0.5 } }
`

// TestCheckSoft covers routes that match what sluice reports of soft limits.
func TestCheckSoft(t *testing.T) {
	const (
		metadata = "dynamic_metadata: [{ filter: envoy.filters.http.ratelimit, path: [{ key: soft }], value: { string_match: { exact: hard } } }]"
		header   = "headers: [{ name: X-RateLimit-Soft, string_match: { exact: hard } }]"
		spoofed  = "error: soft-limit: clients can choose this route"
		never    = "warning: soft-limit: no request takes this route"
	)
	filter := func(typed string) string {
		return "- { name: f, typed_config: { '@type': type.googleapis.com/" + typed + " } }"
	}
	before := func(text string) [2]string {
		return [2]string{"http_filters:\n", "http_filters:\n            " + text + "\n"}
	}
	after := func(text string) [2]string {
		return [2]string{"            - name: router\n", "            " + text + "\n            - name: router\n"}
	}
	inManager := func(text string) [2]string {
		return [2]string{"http_filters:\n", text + "\n          http_filters:\n"}
	}
	inTable := func(text string) [2]string { return [2]string{"virtual_hosts:", text + "\n            virtual_hosts:"} }
	mutation := func(remove string) [2]string {
		return inManager("early_header_mutation_extensions: [{ name: e, typed_config: { '@type': type.googleapis.com/" + earlyHeaderMutation + ", mutations: [" + remove + "] } }]")
	}
	clearing := filter(setFilterState + ", clear_route_cache: true")
	for name, tt := range map[string]struct {
		match   string
		changes [][2]string
		want    string
	}{
		"nothing":                      {"", nil, ""},
		"another header":               {"headers: [{ name: x-plan, present_match: true }]", nil, ""},
		"the header":                   {header, nil, spoofed},
		"the header, removed too late": {header, [][2]string{before(filter("envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: { request_mutations: [{ remove: x-ratelimit-soft }] }"))}, spoofed},
		"removed early":                {header, [][2]string{mutation("{ remove: x-RateLimit-soft }")}, ""},
		"another removed early":        {header, [][2]string{mutation("{ remove: x-plan }")}, spoofed},
		"internal only":                {header, [][2]string{inTable("internal_only_headers: [x-ratelimit-soft]"), inManager("use_remote_address: true")}, ""},
		"internal only, of any peer":   {header, [][2]string{inTable("internal_only_headers: [x-ratelimit-soft]")}, spoofed},
		"the metadata":                 {metadata, nil, never},
		"other metadata":               {strings.Replace(metadata, "key: soft", "key: denied_by", 1), nil, ""},
		"of another filter":            {strings.Replace(metadata, "ratelimit,", "lua,", 1), nil, ""},
		"selected again":               {metadata, [][2]string{after(clearing)}, ""},
		"selected again before":        {metadata, [][2]string{before(clearing)}, never},
		"not selected again":           {metadata, [][2]string{after(filter(setFilterState))}, never},
		"a filter without effect":      {metadata, [][2]string{after(filter("envoy.extensions.filters.http.cors.v3.Cors"))}, never},
		"disabled":                     {metadata, [][2]string{after(strings.Replace(clearing, "name: f", "name: f, disabled: true", 1))}, never},
		"Lua may select again":         {metadata, [][2]string{after(filter(luaCode + ", default_source_code: { inline_string: x }"))}, ""},
		"acknowledged":                 {"\n                        # sluice:allow soft-limit\n                        " + metadata, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(completeListener, "cluster_header: x-backend", "cluster: backend", 1)
			if tt.match != "" {
				tt.changes = append(tt.changes, [2]string{"match: { prefix: / }", "match: { prefix: /, " + tt.match + " }"})
			}
			for _, change := range tt.changes {
				changed := strings.Replace(text, change[0], change[1], 1)
				if changed == text {
					t.Fatalf("no %q in\n%s", change[0], text)
				}
				text = changed
			}
			c, err := Read([]File{{"envoy.yaml", []byte(text)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			soft := func(rules string) (all []string) {
				for _, f := range c.Check(ruleSet(t, rules)) {
					if f.Code == Soft {
						all = append(all, f.String())
					}
				}
				return all
			}
			if got := soft("domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]"); got != nil {
				t.Errorf("without soft limits: %q", got)
			}
			if got := soft(softRules); tt.want == "" && got != nil || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("found %q, want %q in\n%s", got, tt.want, text)
			}
			if c.SoftHeader = "x-plan"; name == "another header" && len(soft(softRules)) != 1 {
				t.Error("the name of --soft-header is ignored")
			}
		})
	}
}
