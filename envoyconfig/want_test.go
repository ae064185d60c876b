package envoyconfig

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestShapes has values of another kind than Envoy's API has: each is an error that has its
// place, and all are told at once. e2e/asked holds the same against the real Envoy.
func TestShapes(t *testing.T) {
	for text, want := range map[string]string{
		"static_resources: 5":                                                   "f:1:19: static_resources: found 5, want an object",
		"staticResources: { listeners: 5 }":                                     "f:1:31: listeners: found 5, want a list of objects",
		"static_resources: { listeners: [[], x]}":                               "f:1:33: listeners: found a list of 0, want an object\n" + `f:1:37: listeners: found "x", want an object`,
		"node: []\nstatic_resources: {}":                                        "f:1:7: node: found a list of 0, want an object",
		`{"filterChains": [{"filters": {"typedConfig": "x"}}]}`:                 `f:1:47: typedConfig: found "x", want an object with @type`,
		"virtual_hosts: [{ rate_limits: [{ actions: [generic_key] }] }]":        `f:1:45: actions: found "generic_key", want an object`,
		"virtual_hosts: [{ rate_limits: x, routes: { match: { headers: 1 }} }]": `f:1:32: rate_limits: found "x", want a list of objects` + "\nf:1:63: headers: found 1, want a list of objects",
		`virtual_hosts: []
typed_per_filter_config:
  a: { "@type": x/` + filterConfig + `, config: { "@type": x/xds.type.v3.TypedStruct, type_url: x/` + perRouteConfig + `, value: { domain: 5 } } }`: "f:3:192: domain: found 5, want text",
		"resources: [{ resource: { virtual_hosts: [] } }, 7]":                                            "f:1:50: resources: found 7, want an object",
		`{"configs": [{"@type": "x/envoy.admin.v3.SecretsConfigDump"}, 7]}`:                              "f:1:63: configs: found 7, want an object",
		`{"configs": [{"@type": "x/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": 5}]}`:       "f:1:85: dynamic_listeners: found 5, want a list of objects",
		"kind: EnvoyFilter\nspec: { configPatches: [{ applyTo: HTTP_FILTER, patch: { value: 5 } }] }":    "f:2:65: value: found 5, want an object",
		"kind: EnvoyFilter\nspec: { configPatches: [{ applyTo: CLUSTER, patch: { value: {name: []}}}] }": "f:2:68: name: found a list of 0, want text",
		"http_filters: [5]\nrate_limits: []\nclusters: x":                                                `f:1:16: http_filters: found 5, want an object` + "\n" + `f:3:11: clusters: found "x", want a list of objects`,
	} {
		_, err := Read([]File{{"f", []byte(text)}})
		if err == nil || err.Error() != want {
			t.Errorf("Read(%s) = %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{
		// What is not read is not judged, so that a newer Envoy does not break it.
		"static_resources: { secrets: 5, listeners: [{ filter_chains: [{ filters: [{ typed_config: { \"@type\": x/a.b.New, http_filters: 5 } }] }], new: 5 }] }\nadmin: 5",
		`{"configs": [{"@type": "x/envoy.admin.v3.SecretsConfigDump", "listeners": 5}]}`,
		"virtual_hosts: [{ routes: [{ match: { prefix: / , cookies: 5 }, redirect: 5 }] }]\nvhds: 5",
		"virtual_hosts: []\nname:",
	} {
		if _, err := Read([]File{{"f", []byte(text)}}); err != nil {
			t.Errorf("Read(%s) = %v", text, err)
		}
	}
}

// TestOneMeaning has values that Envoy takes in two ways asked for alike.
func TestOneMeaning(t *testing.T) {
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
		if got := ask(t, c, "GET http://a/", "x-user: al"); got != "shop: (user, al)" {
			t.Errorf("%s: asks %s, want shop: (user, al)", other, got)
		}
	}
	for text, want := range map[string]string{"yes": "true", "{ value: OFF }": "false", "{ value: 7 }": "7", "'7'": "7"} {
		roots, err := parseYAML(&file{"f"}, "x: "+text)
		if err != nil {
			t.Fatal(err)
		}
		x := roots[0].field("x")
		if good := x.tidyBoolean() || x.tidyNumber(); !good || x.str() != want || x.name != "x" {
			t.Errorf("%s is read as %q of %q, want %q", text, x.str(), x.name, want)
		}
	}
	roots, err := parseYAML(&file{"f"}, "timeout: { seconds: 2, nanos: 500000000 }")
	if err != nil {
		t.Fatal(err)
	}
	if d := roots[0].field("timeout"); !d.tidyDuration() || d.str() != "2.5s" {
		t.Errorf("two seconds and a half are read as %q", d.str())
	}
}

// TestWhatIsReadIsJudged finds each name of a field in the package's code among those that
// messages have.
func TestWhatIsReadIsJudged(t *testing.T) {
	judged := map[string]bool{}
	var add func(m message)
	see := func(w want) {
		add(w.fields)
		if w.values != nil {
			add(w.values.fields)
		}
	}
	add = func(m message) {
		for name, w := range m {
			judged[name] = true
			see(w)
		}
	}
	add(bootstrapMessage)
	add(listenerMessage)
	add(tableMessage)
	add(clusterMessage)
	add(extension)
	add(responseMessage)
	add(dumpMessage)
	add(envoyFilterMessage)
	add(snippetMessage)
	for _, all := range []map[string]message{dumped, patchMessages, known} {
		for _, m := range all {
			add(m)
		}
	}
	// Of these only matters whether they are there, or they tell what a message is.
	for name := range strings.FieldsSeq(`@type auto_config config_discovery connect_matcher dynamic_resources eds_cluster_config
		grpc grpc_health_check http2_protocol_options items kind lb_policy limit load_assignment matcher original_ip_detection_extensions
		path_normalization_options resource runtime_key type_url use_downstream_protocol_config value via`) {
		if judged[name] && name != "value" {
			t.Errorf("%s is judged", name)
		}
		judged[name] = true
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`\.(?:field|at)\(("[^)]*")\)`).FindAllStringSubmatch(string(code), -1) {
			for name := range strings.SplitSeq(call[1], ", ") {
				if name, ok := strings.CutPrefix(name, `"`); ok {
					if found++; !judged[strings.TrimSuffix(name, `"`)] {
						t.Errorf("%s reads %q, which no message has", source, strings.TrimSuffix(name, `"`))
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names found in %s", found, slices.Sorted(slices.Values(sources)))
	}
}
