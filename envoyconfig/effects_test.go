package envoyconfig

import (
	"strings"
	"testing"
)

// TestEffects covers configurations whose limits have no effect because of another part, each with one that differs
// little and works.
func TestEffects(t *testing.T) {
	const (
		users    = "descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 60 } }]"
		limits   = "rate_limits: " + userPolicy + "\n"
		filters  = "x/envoy.extensions.filters.http."
		remove   = "{ name: a, typed_config: { '@type': " + filters + "header_mutation.v3.HeaderMutation, mutations: { request_mutations: [{ remove: x-user }] } } }"
		authz    = "{ name: b, typed_config: { '@type': " + filters + "ext_authz.v3.ExtAuthz } }"
		mutation = "{ name: b, typed_config: { '@type': " + filters + "header_mutation.v3.HeaderMutation } }"
		set      = "typed_per_filter_config: { b: { '@type': " + filters + "header_mutation.v3.HeaderMutationPerRoute, mutations: { request_mutations: [{ append: { header: { key: x-user } } }] } } }\n"
		all      = "{ match: { prefix: / }, route: { cluster: backend } }"
		limited  = "{ match: { prefix: /a }, route: { cluster: backend, rate_limits: " + userPolicy + " } }"
		withUser = "{ match: { prefix: /, headers: [{ name: X-User, present_match: true }] }, route: { cluster: backend } }"
		takes    = "warning: no-effect: the descriptor is never sent: the route at envoy.yaml:19:26 takes all requests with the header x-user"
		gateway  = "{ actions: [{ generic_key: { descriptor_key: gateway, descriptor_value: edge } }] }"
		both     = "rate_limits: [" + gateway + ", { actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]"
		onPath   = "routes: [{ match: { prefix: /a }, route: { cluster: backend, include_vh_rate_limits: true, rate_limits: [" + gateway + "] } }, " + all + "]\n"
		exempt   = "exempt: [{ key: gateway, value: edge }]\n" + users
		replace  = "descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 60, name: general } }, { key: gateway, rate_limit: { unlimited: true, name: gw, replaces: [{ name: general }] } }]"
		health   = "{ name: h, typed_config: { '@type': " + filters + "health_check.v3.HealthCheck, pass_through_mode: false, headers: [{ name: ':path', string_match: { prefix: / } }] } }"
		off      = "typed_per_filter_config: { h: { '@type': x/envoy.config.route.v3.FilterConfig, disabled: true } }\n"
		answers  = "the health check filter at envoy.yaml:8:15 answers every request"
		domain   = "rate_limits: [{ actions: [{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: ':authority', string_match: { exact: api.example } }] } }] }]\n"
		input    = "rate_limits: [{ actions: [{ extension: { name: user, typed_config: { '@type': x/envoy.type.matcher.v3.HttpResponseHeaderMatchInput, header_name: x-user } } }] }]\n"
		removed  = "removes the header x-user before"
	)
	for name, tt := range map[string]struct {
		// before are filters before the limiter, host are fields of the virtual host, rules those of the domain,
		// and domains those of the virtual host.
		before, host, rules, domains string
		// want is a part of the findings; empty if there is none.
		want string
	}{
		"a removed header":                  {before: remove, host: limits, want: removed},
		"a header that ext_authz may set":   {before: remove + "\n            - " + authz, host: limits},
		"a header that ext_authz set":       {before: authz + "\n            - " + remove, host: limits, want: removed},
		"a header that a route sets":        {before: remove + "\n            - " + mutation, host: limits + set},
		"a header that the route restores":  {before: strings.Replace(remove, "name: a", "name: b", 1), host: limits + set},
		"a header that no route sets":       {before: remove + "\n            - " + mutation, host: limits, want: removed},
		"a route for the header":            {host: "routes: [" + withUser + ", " + limited + "]\n", want: takes},
		"a route without the header":        {host: "routes: [" + strings.Replace(withUser, "true", "false", 1) + ", " + limited + "]\n"},
		"a route for another header":        {host: "routes: [" + strings.Replace(withUser, "X-User", "x-tenant", 1) + ", " + limited + "]\n"},
		"a route for some paths":            {host: "routes: [" + strings.Replace(withUser, "prefix: /", "prefix: /a/b", 1) + ", " + limited + "]\n"},
		"a route for two headers":           {host: "routes: [" + strings.Replace(withUser, "[{", "[{ name: b, present_match: true }, {", 1) + ", " + limited + "]\n"},
		"a limited route for the header":    {host: limits + "routes: [" + withUser + ", " + all + "]\n"},
		"a header that is set after routes": {before: authz, host: "routes: [" + withUser + ", " + limited + "]\n"},
		"always exempt":                     {host: both, rules: exempt, want: "warning: never-denies: the limit of user never denies a request: the descriptor at envoy.yaml:19:31 exempts every request"},
		"exempt on a route":                 {host: limits + onPath, rules: exempt},
		"another value exempt":              {host: both, rules: strings.Replace(replace, ", replaces: [{ name: general }]", "", 1) + "\nexempt: [{ key: gateway, value: core }]"},
		"always replaced":                   {host: both, rules: replace, want: "warning: never-denies: the limit of user never denies a request: the descriptor at envoy.yaml:19:31, which every request has, reaches gateway, which replaces it"},
		"replaced on a route":               {host: limits + onPath, rules: replace},
		"replaced for a header":             {host: strings.Replace(both, "{ generic_key", "{ request_headers: { header_name: x-a, descriptor_key: a } }, { generic_key", 1), rules: strings.Replace(replace, "{ key: gateway,", "{ key: a, descriptors: [{ key: gateway,", 1) + "}]"},
		"answered before":                   {before: health, host: limits, want: answers},
		"answered on another path":          {before: strings.Replace(health, "prefix: /", "prefix: /healthz", 1), host: limits},
		"passed through":                    {before: strings.Replace(health, "false", "true", 1), host: limits},
		"not answered on a virtual host":    {before: health, host: limits + off},
		"another authority":                 {host: domain, domains: "shop.example", want: "error: no-effect: the descriptor is never sent: no request of the virtual host all has the authority api.example"},
		"an authority":                      {host: domain, domains: "shop.example, '*.Example'"},
		"any authority":                     {host: domain},
		"an authority that ext_authz sets":  {before: authz, host: domain, domains: "shop.example"},
		"a header of the response":          {host: input, want: "warning: no-effect: the entry never has a value: HttpResponseHeaderMatchInput reads the response"},
		"a header of the request":           {host: strings.Replace(input, "Response", "Request", 1)},
	} {
		if !strings.Contains(tt.host, "routes:") {
			tt.host = strings.TrimSpace(tt.host) + "\n" + toBackend
		}
		text := strings.Replace(hostOf(tt.host), "domain: shop\n", "domain: shop\n                timeout: 1s\n", 1)
		if tt.domains != "" {
			text = strings.Replace(text, `["*"]`, "["+tt.domains+"]", 1)
		}
		if tt.before != "" {
			text = strings.Replace(text, "http_filters:\n", "http_filters:\n            - "+tt.before+"\n", 1)
		}
		c, err := Read([]File{{"envoy.yaml", []byte(text)}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tt.rules == "" {
			tt.rules = users
		}
		var found []string
		for _, f := range c.Check(ruleSet(t, "domain: shop\n"+tt.rules+"\n")) {
			if s := f.Severity.String(); s == "error" || s == "warning" {
				found = append(found, f.String())
			}
		}
		if all := strings.Join(found, "\n"); tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
			t.Errorf("%s: found %s\nwant %q in\n%s", name, all, tt.want, text)
		}
	}
}
