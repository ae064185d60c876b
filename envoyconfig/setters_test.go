package envoyconfig

import (
	"os"
	"strings"
	"testing"
)

// TestSetters covers filters that set metadata and headers before and after the rate limit filter.
func TestSetters(t *testing.T) {
	const (
		jwt     = "{ name: tokens, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication, providers: { p: { payload_in_metadata: claims } }, rules: [{ requires: { provider_name: p } }] } }"
		authz   = "{ name: authz, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz } }"
		cors    = "{ name: cors, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }"
		proc    = "{ name: proc, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor } }"
		toMeta  = "{ name: to, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config, metadata: [{ metadata_namespace: ns, value: { a: b } }] } }"
		mutate  = "{ name: mutate, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: { request_mutations: [{ append: { header: { key: X-Tenant, value: v } } }] } } }"
		lua     = "{ name: lua, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: { inline_string: 'function envoy_on_request(h) h:headers():add(\"x-tenant\", \"v\") end' } } }"
		setsNS  = "{ name: lua, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: { inline_string: 'function envoy_on_request(h) h:streamInfo():dynamicMetadata():set( ''ns'', ''a'', 1) end' } } }"
		reads   = "{ name: reads, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC, rules: { policies: { p: { permissions: [{ any: true }], principals: [{ metadata: { filter: ns, path: [{ key: a }], value: { present_match: true } } }] } } } } }"
		fault   = "{ name: faults, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, filter_metadata: { a: b } } }"
		headers = "{ name: headers, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{ header: x, on_header_present: { key: a } }] } }"

		ofJWT    = "metadata: { descriptor_key: tenant, metadata_key: { key: envoy.filters.http.jwt_authn, path: [{ key: claims }, { key: tenant }] } }"
		ofAuthz  = "metadata: { descriptor_key: tenant, metadata_key: { key: envoy.filters.http.ext_authz, path: [{ key: tenant }] } }"
		ofNS     = "metadata: { descriptor_key: tenant, metadata_key: { key: ns, path: [{ key: a }] } }"
		ofHeader = "request_headers: { descriptor_key: tenant, header_name: x-tenant }"
	)
	for name, test := range map[string]struct {
		before, after, action, more, route, want, calls string
	}{
		"jwt before":             {before: jwt, action: ofJWT, calls: "shop: unknown: metadata envoy.filters.http.jwt_authn:claims.tenant: the filter tokens sets it"},
		"jwt with one rule":      {before: strings.NewReplacer("[{ requires", "{ requires", "}]", "}").Replace(jwt), action: ofJWT, calls: "shop: unknown: metadata envoy.filters.http.jwt_authn:claims.tenant: the filter tokens sets it"},
		"jwt after":              {after: jwt, action: ofJWT, want: "error: no-effect: the descriptor is never sent: the filter that sets the metadata envoy.filters.http.jwt_authn, at envoy.yaml", calls: "shop: not sent: the filter that sets the metadata"},
		"no jwt":                 {action: ofJWT, want: "error: no-effect: the descriptor is never sent: no filter before the rate limit filter sets the metadata envoy.filters.http.jwt_authn", calls: "shop: not sent: no filter before"},
		"no jwt among others":    {before: cors, action: ofJWT, want: "error: no-effect: the descriptor is never sent: no filter before", calls: "shop: not sent: no filter before"},
		"no jwt, but code":       {before: proc, action: ofJWT, calls: "shop: unknown: metadata envoy.filters.http.jwt_authn:claims.tenant: another filter may set it"},
		"another payload":        {before: strings.Replace(jwt, "claims", "claim", 1), action: ofJWT, want: "error: no-effect: the descriptor is never sent: no provider of the filter at envoy.yaml:8:15 has payload_in_metadata: claims, so the metadata is never set; did you mean \"claim\"?", calls: "shop: not sent: no provider"},
		"a token without rules":  {before: strings.Replace(jwt, "provider_name: p", "", 1), action: ofJWT, want: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets envoy.filters.http.jwt_authn:claims.tenant, but its rules verify no token", calls: "shop: not sent: the filter"},
		"authz before":           {before: authz, action: ofAuthz, calls: "shop: unknown: metadata envoy.filters.http.ext_authz:tenant: the filter authz sets it"},
		"jwt for authz":          {before: jwt, action: ofAuthz, want: "error: no-effect: the descriptor is never sent: no filter before", calls: "shop: not sent: no filter before"},
		"set_metadata before":    {before: toMeta, action: ofNS, calls: "shop: unknown: metadata ns:a: the filter to sets it"},
		"set_metadata after":     {after: toMeta, action: ofNS, want: "error: no-effect: the descriptor is never sent: the filter that sets the metadata ns", calls: "shop: not sent: the filter that sets"},
		"set_metadata of others": {before: strings.Replace(toMeta, "metadata_namespace: ns", "metadata_namespace: other", 1), action: ofNS, want: "error: no-effect: the descriptor is never sent: no filter before", calls: "shop: not sent: no filter before"},
		"a default":              {action: strings.Replace(ofNS, "descriptor_key", "default_value: none, descriptor_key", 1), want: "warning: no-effect: the entry never has a value from the metadata: no filter before", calls: "shop: (tenant, none)"},
		"after, at the end":      {after: toMeta, action: ofNS, more: ", apply_on_stream_done: true", calls: "shop: unknown: metadata ns:a: the filter to sets it"},
		// Filters of clusters may set it, and the file has no clusters.
		"nowhere, at the end":     {action: ofNS, more: ", apply_on_stream_done: true", calls: "shop: unknown: metadata ns:a: another filter may set it"},
		"a header before":         {before: mutate, action: ofHeader, calls: `shop: not sent: no header "x-tenant"`},
		"a header after":          {after: mutate, action: ofHeader, want: "warning: no-effect: the filter that sets the header x-tenant, at envoy.yaml", calls: `shop: not sent: no header "x-tenant"`},
		"a header by code after":  {after: lua, action: ofHeader, want: "warning: no-effect: the filter that sets the header x-tenant, at envoy.yaml", calls: `shop: not sent: no header "x-tenant"`},
		"a header by code":        {before: lua, after: lua, action: ofHeader, calls: `shop: not sent: no header "x-tenant"`},
		"a filter that reads it":  {before: reads, action: ofNS, want: "error: no-effect: the descriptor is never sent: no filter before the rate limit filter sets the metadata ns", calls: "shop: not sent: no filter before"},
		"code that reads it":      {before: strings.Replace(lua, "h:headers():add(", "h:streamInfo():dynamicMetadata():get(\"ns\")(", 1), after: toMeta, action: ofNS, want: "error: no-effect: the descriptor is never sent: the filter that sets the metadata ns", calls: "shop: not sent: the filter that sets"},
		"code that sets it":       {before: setsNS, action: ofNS, calls: "shop: unknown: metadata ns:a: the filter lua sets it"},
		"code that sets another":  {before: strings.Replace(setsNS, "a'',", "aa'',", 1), action: ofNS, want: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets the metadata ns, but not its key a; did you mean \"aa\"?", calls: "shop: not sent: the filter"},
		"code that may set it":    {before: strings.Replace(setsNS, "''a''", "name", 1), action: ofNS, calls: "shop: unknown: metadata ns:a: another filter may set it"},
		"code that loads other":   {before: strings.Replace(setsNS, "function", "require ''other'' function", 1), action: strings.Replace(ofNS, "key: a }", "key: b }", 1), calls: "shop: unknown: metadata ns:b: the filter lua sets it"},
		"code of responses":       {before: strings.Replace(setsNS, "on_request", "on_response", 1), action: ofNS, want: "error: no-effect: the descriptor is never sent: the filter at envoy.yaml:8:15 sets ns:a, but when the response arrives", calls: "shop: not sent: the filter"},
		"code without a handler":  {before: strings.Replace(setsNS, "envoy_on_request", "on_request", 1), action: ofNS, want: "error: no-effect: the descriptor is never sent: no filter before", calls: "shop: not sent: no filter before"},
		"a namespace by default":  {before: headers, action: strings.Replace(ofNS, "key: ns", "key: envoy.filters.http.header_to_metadata", 1), calls: "shop: unknown: metadata envoy.filters.http.header_to_metadata:a: the filter headers sets it"},
		"faults":                  {before: fault, action: strings.Replace(ofNS, "key: ns", "key: faults", 1), calls: "shop: unknown: metadata faults:a: the filter faults sets it"},
		"two filters of tokens":   {before: strings.Replace(jwt, "claims", "other", 1) + "\n            - " + jwt, action: ofJWT, calls: "shop: unknown: metadata envoy.filters.http.jwt_authn:claims.tenant: the filter tokens sets it"},
		"another payload or code": {before: strings.Replace(jwt, "claims", "claim", 1) + "\n            - " + proc, action: ofJWT, calls: "shop: unknown: metadata envoy.filters.http.jwt_authn:claims.tenant: the filter tokens sets it"},
		"of some routes":          {before: headers, action: ofNS, route: "headers: { '@type': type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{ header: a, on_header_present: { metadata_namespace: ns, key: a } }] }", calls: "shop: unknown: metadata ns:a: another filter may set it"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.TrimPrefix(listenerText, "\n")
			i := strings.Index(text, "http_filters:\n") + len("http_filters:\n")
			if test.before != "" {
				text = text[:i] + "            - " + test.before + "\n" + text[i:]
			}
			if test.after != "" {
				const last = "            - { name: envoy.filters.http.router"
				j := strings.LastIndex(text, "            - name: router")
				if j < 0 {
					j = strings.Index(text, last)
				}
				if j < 0 {
					t.Fatalf("there is no router in\n%s", text)
				}
				text = text[:j] + "            - " + test.after + "\n" + text[j:]
			}
			j := strings.Index(text, "                domains:")
			text = text[:j] + "                domains: ['*']\n                rate_limits: [{ actions: [{ " + test.action + " }]" + test.more + " }]\n                typed_per_filter_config: { " + test.route + " }\n                " + toBackend
			c, err := Read([]File{{"envoy.yaml", []byte(text)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var got []string
			for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1, count_refused: true } }]\n")) {
				if f.Code == NoEffect {
					_, message, _ := strings.Cut(f.String(), " ")
					got = append(got, message)
				}
			}
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)) {
				t.Errorf("findings are %q, want %q", got, test.want)
			}
			if got := callsText(t, c, "http://a/"); !strings.HasPrefix(got, test.calls) {
				t.Errorf("calls are %s, want %s", got, test.calls)
			}
		})
	}
}

// TestTenantExampleWithoutTokens removes the jwt_authn filter of examples/tenant-overrides, and moves it after the rate
// limit filter.
func TestTenantExampleWithoutTokens(t *testing.T) {
	example, err := os.ReadFile("../examples/tenant-overrides/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../examples/tenant-overrides/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const limit, router = "                  - name: envoy.filters.http.ratelimit\n", "                  - name: envoy.filters.http.router\n"
	before, rest, _ := strings.Cut(string(example), "                  - name: envoy.filters.http.jwt_authn\n")
	tokens, after, ok := strings.Cut(rest, limit)
	own, behind, more := strings.Cut(after, router)
	if !ok || !more {
		t.Fatal("the example has other filters")
	}
	tokens = "                  - name: envoy.filters.http.jwt_authn\n" + tokens
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"as it is": {string(example), 0},
		"deleted":  {before + limit + after, 2},
		"swapped":  {before + limit + own + tokens + router + behind, 2},
	} {
		c, err := Read([]File{{"envoy.yaml", []byte(test.text)}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := 0
		for _, f := range c.Check(ruleSet(t, string(rules))) {
			if f.Code == NoEffect && strings.Contains(f.Message, "envoy.filters.http.jwt_authn") {
				found++
			}
		}
		if found != test.want { // for the descriptor and for its limit
			t.Errorf("%s: %d findings about jwt_authn, want %d", name, found, test.want)
		}
	}
}

// TestMetadataOfOtherRateLimitFilter covers a rate limit filter that reads metadata from the replies to another one.
func TestMetadataOfOtherRateLimitFilter(t *testing.T) {
	text := strings.Replace(listenerText, "            - name: limit\n",
		"            - { name: first, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: first, metadata_namespace: ns } }\n            - name: limit\n", 1)
	text = strings.Replace(text, "request_headers: { header_name: x-user, descriptor_key: user }", "metadata: { descriptor_key: user, metadata_key: { key: ns, path: [{ key: a }] } }", 1)
	c, err := Read([]File{{"envoy.yaml", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "shop: unknown: metadata ns:a: the filter first sets it"
	if got := callsText(t, c, "http://a/"); !strings.Contains(got, want) {
		t.Errorf("calls are %s, want %s", got, want)
	}
}
