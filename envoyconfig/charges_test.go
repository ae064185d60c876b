package envoyconfig

import (
	"fmt"
	"strings"
	"testing"
)

// TestChargedTwice covers elements that charge one counter twice, and some that only seem to.
func TestChargedTwice(t *testing.T) {
	const user = "{ request_headers: { header_name: x-user, descriptor_key: user } }"
	fixed := func(value string) string {
		return "{ generic_key: { descriptor_key: user, descriptor_value: " + value + " } }"
	}
	matching := func(header string) string {
		return "{ header_value_match: { descriptor_key: user, descriptor_value: a, headers: [{ name: " + header + " }] } }"
	}
	mask := func(bits int) string {
		return fmt.Sprintf("{ masked_remote_address: { v4_prefix_mask_len: %d } }", bits)
	}
	metadata := "{ metadata: { descriptor_key: user, metadata_key: { key: ns, path: [{ key: user }] } } }"
	set := "{ name: set, typed_config: { '@type': x/envoy.extensions.filters.http.set_metadata.v3.Config, metadata: [{ metadata_namespace: ns, value: { user: a } }] } }"
	const limit = "rate_limit: { unit: hour, requests_per_unit: 60"
	const ofUser = "{ key: user, " + limit + " } }"
	for name, tt := range map[string]struct{ first, second, before, rules, want string }{
		"two names of the authority": {first: strings.Replace(user, "x-user", "host", 1), second: strings.Replace(user, "x-user", "':authority'", 1), rules: ofUser, want: "warning: charged-twice: each request charges the counter of user=<:authority header> twice, since the element at envoy.yaml:18:31 charges the same counter"},
		"an expression of a header":  {first: user, second: `{ extension: { name: e, typed_config: { '@type': x/` + expression + `, descriptor_key: user, text: "request.headers['x-user']" } } }`, rules: ofUser, want: "warning: charged-twice"},
		"constant metadata":          {first: fixed("a"), second: metadata, before: set, rules: ofUser, want: "warning: charged-twice"},
		"other constant metadata":    {first: fixed("b"), second: metadata, before: set, rules: ofUser},
		"shared values":              {first: fixed("bot-1"), second: fixed("bot-2"), rules: "{ key: user, value: bot-*, share_threshold: true, " + limit + " } }", want: "warning: charged-twice"},
		"values with own counters":   {first: fixed("bot-1"), second: fixed("bot-2"), rules: "{ key: user, value: bot-*, " + limit + " } }"},
		"a shared counter":           {first: user, second: fixed("all"), rules: "{ key: user, value: all, " + limit + ", counter: pool } }, { key: user, " + limit + ", counter: pool } }", want: "warning: charged-twice"},
		"a counter of one value":     {first: user, second: fixed("all"), rules: "{ key: user, value: all, " + limit + ", counter: pool } }, " + ofUser},
		"a counter of either key": {
			first: user, second: "{ request_headers: { header_name: x-api-key, descriptor_key: apikey } }",
			rules: "{ key: user, " + limit + ", counter: pool } }, { key: apikey, " + limit + ", counter: pool } }",
		},
		"two masks":              {first: mask(16), second: mask(24), rules: "{ key: masked_remote_address, " + limit + " } }"},
		"two headers that match": {first: matching("a"), second: matching("b"), rules: ofUser},
		"the same match":         {first: matching("a"), second: matching("a"), rules: ofUser, want: "warning: charged-twice"},
		"an entry that may be absent": {
			first: user, second: user + ", { request_headers: { header_name: x-plan, descriptor_key: plan, skip_if_absent: true } }",
			rules: "{ key: user, " + limit + " }, descriptors: [{ key: plan, " + limit + " } }] }", want: "warning: charged-twice: requests without plan charge the counter of user=<x-user header> twice",
		},
	} {
		text := hostOf("rate_limits: [{ actions: [" + tt.first + "] }, { actions: [" + tt.second + "] }]\n" + toBackend)
		if tt.before != "" {
			text = strings.Replace(text, "http_filters:\n", "http_filters:\n            - "+tt.before+"\n", 1)
		}
		checkCharges(t, name, text, tt.rules, tt.want)
	}
	for name, hits := range map[string]string{
		"no hits": "hits_addend: { number: 0 }", "a cost": "apply_on_stream_done: true, hits_addend: { format: '%BYTES_SENT%' }",
	} {
		second := "{ actions: [" + user + ", { request_headers: { header_name: x-plan, descriptor_key: plan, skip_if_absent: true } }], " + hits + " }"
		text := strings.Replace(hostOf(toBackend), "domain: shop\n", "domain: shop\n                rate_limits: [{ actions: ["+user+"] }, "+second+"]\n", 1)
		checkCharges(t, name+" without an entry", text, "{ key: user, "+limit+" }, descriptors: [{ key: plan, "+limit+" } }] }", "")
	}
	const network = "{ typed_config: { '@type': x/envoy.extensions.filters.network.ratelimit.v3.RateLimit, stat_prefix: s, domain: shop, timeout: 1s, descriptors: [{ entries: [{ key: user, value: a }] }], rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice } } } } }"
	checkCharges(t, "two network filters", "filter_chains: [{ filters: ["+network+", "+network+"] }]", ofUser, "warning: charged-twice: each connection charges the counter of (user, a) twice")
	checkCharges(t, "two filter chains", "filter_chains: [{ filters: ["+network+"] }, { filters: ["+network+"] }]", ofUser, "")
}

func checkCharges(t *testing.T, name, envoy, rules, want string) {
	t.Helper()
	c, err := Read([]File{{"envoy.yaml", []byte(envoy)}})
	if err != nil {
		t.Fatal(name, err)
	}
	var all []string
	for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: ["+rules+"]\n")) {
		if f.Code == ChargedTwice {
			all = append(all, f.String())
		}
	}
	found := strings.Join(all, "\n")
	if want == "" && found != "" || !strings.Contains(found, want) {
		t.Errorf("%s: found %q, want %q", name, found, want)
	}
}
