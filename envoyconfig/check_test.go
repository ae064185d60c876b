package envoyconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// proxy returns a configuration with the given fields, in YAML, of its virtual host and of its filter.
func proxy(tb testing.TB, host string, filter ...string) *Config {
	tb.Helper()
	text := strings.Replace(listenerText, "domain: shop\n", "domain: shop\n"+strings.Repeat(" ", 16)+strings.Join(filter, "\n"+strings.Repeat(" ", 16))+"\n", 1)
	i := strings.Index(text, "                domains:")
	text = text[:i] + "                " + indent(`domains: ["*"]`+"\n"+strings.TrimSpace(host), "                ") + "\n"
	c, err := Read([]File{{"envoy.yaml", []byte(text[1:])}})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func ruleSet(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	configs, found := rulefile.Parse("rules.yaml", []byte(text))
	set, more := descriptors.Compile(configs, descriptors.Options{})
	if set == nil {
		tb.Fatal(found, more)
	}
	return set
}

const toBackend = "routes: [{ match: { prefix: / }, route: { cluster: backend } }]\n"

func TestCheck(t *testing.T) {
	const rules = `domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: path
    value: /search
    descriptors:
      - { key: method, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: plan, value: free }
`
	const both = `rate_limits:
- actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
- actions: [{ request_headers: { header_name: x-path, descriptor_key: path } }, { request_headers: { header_name: ":method", descriptor_key: method } }]
` + toBackend
	for name, tt := range map[string]struct {
		host, rules, filter string
		want                []string
	}{
		"no findings":            {host: both},
		"a rule without a limit": {host: strings.Replace(both, "rate_limits:\n", "rate_limits:\n- actions: [{ generic_key: { descriptor_key: plan, descriptor_value: free } }]\n", 1)},
		"misspelt": {
			host: strings.Replace(both, "descriptor_key: user", "descriptor_key: usr", 1),
			want: []string{
				`envoy.yaml:21:19: error: unmatched: no rule of domain "shop" can match (usr, *): nothing matches entry 1, usr: the rules begin with user (rules.yaml:3:5), path=/search (rules.yaml:5:5), plan=free (rules.yaml:9:5); did you mean "user"?`,
				`rules.yaml:3:5: warning: unsent: no route sends a descriptor that user can match: add its actions to the rate_limits of a route or virtual host`,
			},
		},
		"too short": {
			host: strings.Replace(both, `, { request_headers: { header_name: ":method", descriptor_key: method } }`, "", 1),
			want: []string{
				`envoy.yaml:22:19: error: unmatched: no rule of domain "shop" can match (path, *): path=/search at rules.yaml:5:5 has no limit; deeper ones require method (rules.yaml:8:9)`,
				`rules.yaml:8:9: warning: unsent: no route sends a descriptor that path=/search > method can match: add its actions to the rate_limits of a route or virtual host`,
			},
		},
		"too long": {
			host: strings.Replace(both, "actions: [{", "actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }, {", 1),
			want: []string{
				`envoy.yaml:21:19: error: unmatched: no rule of domain "shop" can match (user, *)(user, *): the rules end with user at rules.yaml:3:5, so longer descriptors match nothing`,
				`rules.yaml:3:5: warning: unsent: no route sends a descriptor that user can match: add its actions to the rate_limits of a route or virtual host`,
			},
		},
		"a value that no rule has": {
			host: strings.Replace(both, "rate_limits:\n", "rate_limits:\n- actions: [{ generic_key: { descriptor_key: plan, descriptor_value: fre } }]\n", 1),
			want: []string{
				`envoy.yaml:21:19: error: unmatched: no rule of domain "shop" can match (plan, fre): nothing matches entry 1, plan=fre: the rules begin with user (rules.yaml:3:5), path=/search (rules.yaml:5:5), plan=free (rules.yaml:9:5)`,
			},
		},
		"an optional entry whose absence matches no rule": {
			host: strings.Replace(both, "rate_limits:\n", "rate_limits:\n- actions: [{ request_headers: { header_name: x-path, descriptor_key: path } }, { request_headers: { header_name: x-method, descriptor_key: method, skip_if_absent: true } }]\n", 1),
			want: []string{
				`envoy.yaml:21:116: warning: unmatched: requests without method are not limited here: skip_if_absent leaves (path, *), which no rule of domain "shop" can match: ` +
					`path=/search at rules.yaml:5:5 has no limit; deeper ones require method (rules.yaml:8:9); add a rule for it, or remove skip_if_absent so that nothing is sent`,
			},
		},
		"a limit of its own needs no rule": {
			host: strings.Replace(both, "rate_limits:\n", "rate_limits:\n- { actions: [{ generic_key: { descriptor_value: x } }], limit: { rate_limit: { requests_per_unit: 1, unit: DAY } } }\n", 1),
		},
		"an entry that may be missing": {
			host: strings.Replace(both, "descriptor_key: user }", "descriptor_key: user }}, { request_headers: { header_name: x, descriptor_key: x, skip_if_absent: true }", 1),
		},
		"an action that cannot be computed may match anything": {
			host: "rate_limits: [{ actions: [{ extension: { name: expr, typed_config: { '@type': x/t } } }] }, { actions: [{ extension: { name: expr, typed_config: { '@type': x/t } } }, { extension: { name: other, typed_config: { '@type': x/t } } }] }]\n" + toBackend,
		},
		"another domain": {
			host: both, rules: strings.Replace(rules, "shop", "shopp", 1),
			want: []string{
				`envoy.yaml:11:25: error: domain: there are no rules for the domain "shop" of this filter, so nothing is limited; did you mean "shopp"?`,
				`rules.yaml:3:5: error: domain: no filter uses the domain "shopp", so its rules limit nothing: set the domain of a rate limit filter`,
			},
		},
		"another domain for a route": {
			host: strings.TrimSuffix(both, toBackend) + `routes:
- match: { prefix: /x }
  route: { cluster: backend }
  typed_per_filter_config:
    limit: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, domain: other }
- { match: { prefix: / }, route: { cluster: backend } }
`,
			want: []string{`envoy.yaml:27:129: error: domain: there are no rules for the domain "other" of this filter, so nothing is limited`},
		},
		"routes that never call the service": {
			host: strings.Replace(both, "route: { cluster: backend }", "direct_response: { status: 200 }", 1),
			want: []string{
				`envoy.yaml:21:19: error: no-effect: no route sends this descriptor: the route is a direct_response, for which Envoy never calls the service (route envoy.yaml:23:26)`,
				`envoy.yaml:22:19: error: no-effect: no route sends this descriptor: the route is a direct_response, for which Envoy never calls the service (route envoy.yaml:23:26)`,
			},
		},
		"a stage that the filter has": {host: strings.ReplaceAll(both, "- actions", "- stage: 2\n  actions"), filter: "stage: 2"},
		"a tree of matchers": {
			host: "matcher: { matcher_tree: { input: { name: i, typed_config: { '@type': x/t } }, exact_match_map: { map: { a: { matcher: {} } } } } }\n",
			want: []string{`envoy.yaml:20:26: note: unknown: matcher trees of virtual hosts are not checked`},
		},
	} {
		text := rules
		if tt.rules != "" {
			text = tt.rules
		}
		var got []string
		for _, f := range proxy(t, tt.host, "timeout: 0.25s", tt.filter).Check(ruleSet(t, text)) {
			got = append(got, f.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
