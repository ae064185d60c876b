package envoyconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// TestWrongKinds covers values of another kind than the field's: Read reports all of them, each
// with its position. e2e/envoyconfig compares them with a real Envoy.
func TestWrongKinds(t *testing.T) {
	for text, want := range map[string]string{
		"static_resources: 5":                                                   "f:1:19: static_resources: found 5, want an object",
		"staticResources: { listeners: 5 }":                                     "f:1:31: listeners: found 5, want an object",
		"static_resources: { listeners: [[], x]}":                               "f:1:33: listeners: found a list of 0, want an object\n" + `f:1:37: listeners: found "x", want an object`,
		"node: []\nstatic_resources: {}":                                        "f:1:7: node: found a list of 0, want an object",
		`{"filterChains": [{"filters": {"typedConfig": "x"}}]}`:                 `f:1:47: typedConfig: found "x", want an object with @type`,
		"virtual_hosts: [{ rate_limits: [{ actions: [generic_key] }] }]":        `f:1:45: actions: found "generic_key", want an object`,
		"virtual_hosts: [{ rate_limits: x, routes: { match: { headers: 1 }} }]": `f:1:32: rate_limits: found "x", want an object` + "\nf:1:63: headers: found 1, want an object",
		`virtual_hosts: []
typed_per_filter_config:
  a: { "@type": x/` + api.FilterConfig + `, config: { "@type": x/xds.type.v3.TypedStruct, type_url: x/` + api.RateLimitPerRoute + `, value: { domain: 5 } } }`: "f:3:192: domain: found 5, want text",
		"kind: EnvoyFilter\nspec: { configPatches: [{ applyTo: CLUSTER, patch: { value: {name: [x]}, operation: ADD}}] }": "f:2:68: name: found a list of 1, want text",
		"static_resources: { secrets: 5, listeners: [{ new: 5 }] }\nadmin: 5": "f:1:30: secrets: found 5, want an object\nf:2:8: admin: found 5, want an object\n" +
			`f:1:52: Envoy 1.40 has no field new here, and rejects it: remove it; did you mean "name"?`,
		"virtual_hosts: [{ routes: [{ match: { prefix: / , cookies: 5 }, redirect: 5 }] }]\nvhds: 5": "f:1:60: cookies: found 5, want an object\nf:1:75: redirect: found 5, want an object\nf:2:7: vhds: found 5, want an object",
	} {
		_, err := Read([]File{{"f", []byte(text)}})
		if err == nil || err.Error() != want {
			t.Errorf("Read(%s) = %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{
		// Third-party messages are unknown and can be anything.
		"static_resources: { listeners: [{ filter_chains: [{ filters: [{ typed_config: { \"@type\": x/a.b.New, http_filters: 5 } }] }] }] }",
		`{"configs": [{"@type": "x/envoy.admin.v3.SecretsConfigDump", "listeners": 5}]}`,
		"virtual_hosts: []\nname:",
	} {
		if _, err := Read([]File{{"f", []byte(text)}}); err != nil {
			t.Errorf("Read(%s) = %v", text, err)
		}
	}
}

// TestEquivalentForms covers values that Envoy accepts in several equivalent forms.
func TestEquivalentForms(t *testing.T) {
	for old, other := range map[string]string{
		`domains: ["*"]`: `domains: "*"`,
		"[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]": "{ actions: { request_headers: { header_name: x-user, descriptor_key: user } } }",
		"[{ match: { prefix: / }, route: { cluster: backend } }]":                             "{ match: { prefix: / }, route: { cluster: backend } }",
		"domain: shop\n": "domain: shop\n                stage: '0'\n",
	} {
		text := strings.Replace(listenerText, old, other, 1)
		c, err := Read([]File{{"f", []byte(text)}})
		if err != nil || text == listenerText {
			t.Errorf("%s: %v", other, err)
			continue
		}
		if got := callsText(t, c, "GET http://a/", "x-user: al"); got != "shop: (user, al)" {
			t.Errorf("%s: calls are %s, want shop: (user, al)", other, got)
		}
	}
}

// TestFieldsThatEnvoyRejects covers fields that Envoy 1.40 does not have.
func TestFieldsThatEnvoyRejects(t *testing.T) {
	list := func(list string) string {
		return strings.Replace(listenerText[1:], "{ request_headers: { header_name: x-user, descriptor_key: user } }", list, 1)
	}
	for name, tt := range map[string]struct {
		files []File
		want  string
	}{
		"an action":             {[]File{{"f", []byte(list("{ newer: {} }"))}}, "f:18:52: Envoy 1.40 has no field newer here, and rejects it: remove it"},
		"misspelt":              {[]File{{"f", []byte(list("{ remote_addr: {} }"))}}, `f:18:58: Envoy 1.40 has no field remote_addr here, and rejects it: remove it; did you mean "remote_address", `},
		"of a later release":    {[]File{{"f", []byte(list("{ newer: {} }"))}, dumpOf("41")}, ""},
		"not of this release":   {[]File{{"f", []byte(list("{ newer: {} }"))}, dumpOf("40")}, "f:18:52: Envoy 1.40 has no field newer here"},
		"a boolean in YAML 1.1": {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: Off } }"))}}, "f:18:78: descriptor_value: found Off, want text: quote it; unquoted it is a boolean"},
		"a quoted boolean":      {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: 'Off' } }"))}}, ""},
		"not a boolean":         {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: oFF } }"))}}, ""},
	} {
		_, err := Read(tt.files)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

// TestFragmentsMayLackFields covers an EnvoyFilter that changes an existing filter and therefore
// lacks required fields.
func TestFragmentsMayLackFields(t *testing.T) {
	const filter = `kind: EnvoyFilter
spec:
  configPatches:
    - applyTo: HTTP_FILTER
      patch:
        operation: MERGE
        value:
          name: envoy.filters.http.ratelimit
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
            timeout: 1s
`
	if _, err := Read([]File{{"f", []byte(filter)}}); err != nil {
		t.Error(err)
	}
	if _, err := Read([]File{{"f", []byte(strings.Replace(filter, "timeout: 1s", "timeouts: 1s", 1))}}); err == nil || !strings.Contains(err.Error(), `no field timeouts here, and rejects it: remove it; did you mean "timeout"?`) {
		t.Error(err)
	}
}
