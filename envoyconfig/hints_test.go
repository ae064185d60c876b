package envoyconfig

import (
	"slices"
	"strings"
	"testing"
)

// TestHints covers common mistakes because of which no rule can match a descriptor.
func TestHints(t *testing.T) {
	const rules = `domain: shop
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: route
    value: login
    descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }]
`
	for actions, want := range map[string]string{
		"{ masked_remote_address: {} }": "; the key of a masked_remote_address entry is not remote_address: change the key of the rule to masked_remote_address, or the action to remote_address",
		"{ generic_key: { descriptor_value: login } }, { request_headers: { header_name: x, descriptor_key: user } }": "; without descriptor_key the key of generic_key is generic_key: add descriptor_key, or use this key in the rule",
		"{ request_headers: { header_name: x, descriptor_key: user } }, { generic_key: { descriptor_key: route, descriptor_value: login } }": "; the rules have these entries in the order (route, login)(user, *): " +
			"reorder the actions",
		"{ generic_key: { descriptor_key: route, descriptor_value: logout } }, { request_headers: { header_name: x, descriptor_key: user } }": "",
		"{ generic_key: { descriptor_key: generic_key, descriptor_value: x } }":                                                               "",
	} {
		var unmatched []string
		for _, f := range proxy(t, "rate_limits: [{ actions: ["+actions+"] }]\n"+toBackend, "timeout: 1s").Check(ruleSet(t, rules)) {
			if f.Code == Unmatched {
				unmatched = append(unmatched, f.Message)
			}
		}
		if len(unmatched) != 1 || !strings.HasSuffix(unmatched[0], want) || want == "" && strings.Contains(unmatched[0], "; ") {
			t.Errorf("%s: found %q, want %q", actions, unmatched, want)
		}
	}
}

// TestExclusive covers pairs of conditions that no request can meet together.
func TestExclusive(t *testing.T) {
	match := func(kind, of, more string) string {
		return "{ " + kind + ": { descriptor_key: user, descriptor_value: v, " + of + more + " } }"
	}
	header := func(more string) string { return match("header_value_match", "headers: [{ name: a }]", more) }
	query := func(more string) string {
		return match("query_parameter_value_match", "query_parameters: [{ name: a }]", more)
	}
	for actions, want := range map[string]bool{
		header("") + ", " + header(", expect_match: false"):                                                                   true,
		query(", expect_match: false") + ", " + query(", expect_match: true"):                                                 true,
		header("") + ", " + header(""):                                                                                        false,
		header("") + ", " + match("header_value_match", "headers: [{ name: b }]", ", expect_match: false"):                    false,
		header("") + ", " + query(", expect_match: false"):                                                                    false,
		header("") + ", " + match("header_value_match", "headers: [{ name: a, present_match: false }]", ", expect_match: no"): false,
	} {
		found := false
		for _, f := range proxy(t, "rate_limits: [{ actions: ["+actions+"] }]\n"+toBackend, "timeout: 1s").Check(ruleSet(t, "{domain: shop, descriptors: []}")) {
			found = found || f.Code == NoEffect && strings.Contains(f.Message, "requires the opposite")
		}
		if found != want {
			t.Errorf("%s: found %v, want %v", actions, found, want)
		}
	}
}

// TestHidden covers routes whose rate_limits hide those of their virtual host.
func TestHidden(t *testing.T) {
	const rules = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}"
	route := func(path, more string) string {
		return "- { match: { path: /" + path + " }, route: { cluster: backend, rate_limits: " + userPolicy + more + " } }\n"
	}
	plain := "- { match: { prefix: / }, route: { cluster: backend } }\n"
	override := "- { match: { path: /o }, route: { cluster: backend, rate_limits: " + userPolicy + " }, typed_per_filter_config: { limit: " +
		"{ '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: OVERRIDE } } }\n"
	for name, tt := range map[string]struct {
		routes string
		want   string
	}{
		"two":               {route("a", "") + route("b", "") + plain, "; the same applies to 1 other line of this file, the next is 22"},
		"three":             {route("a", "") + route("b", "") + route("c", "") + plain, "; the same applies to 2 other lines of this file, the next is 22"},
		"includes":          {route("a", ", include_vh_rate_limits: true") + plain, "twice, since the element at envoy.yaml:21:83 sends the same descriptor: remove one"},
		"explicit override": {override + plain, ""},
		"is acknowledged":   {"# sluice:allow no-effect\n" + route("a", "") + plain, ""},
	} {
		var warnings []string
		for _, f := range proxy(t, "rate_limits: "+userPolicy+"\nroutes:\n"+tt.routes, "timeout: 1s").Check(ruleSet(t, rules)) {
			if strings.Contains(f.String(), ": warning: ") {
				warnings = append(warnings, f.Message)
			}
		}
		if tt.want == "" && len(warnings) > 0 || tt.want != "" && (len(warnings) != 1 || !strings.HasSuffix(warnings[0], tt.want)) {
			t.Errorf("%s: found %q, want %q", name, warnings, tt.want)
		}
	}
}

// TestLocalAndGlobalFilter covers a local rate limit filter in the same chain: its policies need not match a rule.
func TestLocalAndGlobalFilter(t *testing.T) {
	const rules = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}"
	const host = "rate_limits: [{ actions: [{ remote_address: {} }] }, { stage: 3, actions: [{ source_cluster: {} }] }, { actions: [{ request_headers: { header_name: x, descriptor_key: user } }] }]\n" + toBackend
	for stage, want := range map[string]string{"0": "note: unmatched, error: no-effect", "3": "error: unmatched"} {
		text := strings.Replace(listenerText[1:], "          http_filters:\n", "          http_filters:\n            - { name: local, typed_config: { '@type': x/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stage: "+stage+" } }\n", 1)
		text = strings.Replace(text, "domain: shop", "domain: shop\n                timeout: 1s", 1)
		i := strings.Index(text, "                domains:")
		c, err := Read([]File{{"envoy.yaml", []byte(text[:i] + "                " + indent("domains: ['*']\n"+host, "                "))}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range c.Check(ruleSet(t, rules)) {
			if f.Code != SameAddress {
				got = append(got, f.Severity.String()+": "+string(f.Code))
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("of stage %s: found %q, want %s", stage, got, want)
		}
	}
}

// TestDynamicResources covers a bootstrap whose clusters and listeners also come by xDS.
func TestDynamicResources(t *testing.T) {
	listener := strings.Replace(completeListener, "domain: shop", "domain: shop\n                timeout: 1s\n                rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: a } } }", 1)
	text := "static_resources:\n  listeners:\n    - " + indent(listener, "      ") + "\n  clusters: [{ name: xds }]\n"
	for from, want := range map[string]string{
		"": `error: cluster: the cluster "a" of the service is not in these files: add it, or correct the name`,
		"dynamic_resources: { cds_config: { ads: {} } }\n": `note: unknown: the cluster "a" of the service is not in these files: also pass the cluster, or the output of /config_dump`,
	} {
		if got := checkTexts(t, text+from); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("%q: found %q, want %s", from, got, want)
		}
	}
	got := checkTexts(t, strings.Replace(text, "domain: shop", "domain: mail", 1)+"dynamic_resources: { cds_config: { ads: {} }, lds_config: { ads: {} } }\n")
	for _, f := range got {
		if strings.Contains(f, "no filter uses") && !strings.Contains(f, `note: unknown: no filter uses the domain "shop" in these files`) {
			t.Errorf("with listeners from elsewhere: found %s", f)
		}
	}
	if len(got) != 3 {
		t.Errorf("with listeners from elsewhere: found %q", got)
	}
}

// TestTwoDomains covers two filters of the same stage: both send each policy, although it is meant for one of them.
func TestTwoDomains(t *testing.T) {
	const rules = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}\n---\n{domain: mail, descriptors: [{key: partner, rate_limit: {unit: minute, requests_per_unit: 1}}]}\n"
	filters := "          http_filters:\n            - { name: other, typed_config: { '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: mail, timeout: 1s } }\n"
	text := strings.NewReplacer("          http_filters:\n", filters, "domain: shop", "domain: shop\n                timeout: 1s", "rate_limits: [", "rate_limits: [{ actions: [{ request_headers: { header_name: x, descriptor_key: partner } }] }, ").Replace(listenerText[1:])
	for key, want := range map[string]string{"partner": "note, note", "nobody": "note, error, warning"} {
		c, err := Read([]File{{"envoy.yaml", []byte(strings.Replace(text, "descriptor_key: partner", "descriptor_key: "+key, 1))}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range c.Check(ruleSet(t, rules)) {
			got = append(got, f.Severity.String())
		}
		slices.Sort(got)
		wants := strings.Split(want, ", ")
		slices.Sort(wants)
		if !slices.Equal(got, wants) {
			t.Errorf("with the key %s: found %v", key, c.Check(ruleSet(t, rules)))
		}
	}
}
