package envoyconfig

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
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
	for _, all := range []map[string]message{dumped, patchMessages} {
		for _, m := range all {
			add(m)
		}
	}
	for _, w := range known {
		see(w)
	}
	// Of these only matters whether they are there, or they tell what a message is.
	for name := range strings.FieldsSeq(`@type auto_config config_discovery connect_matcher dynamic_resources eds_cluster_config
		grpc grpc_health_check http2_protocol_options items kind lb_policy load_assignment matcher original_ip_detection_extensions
		path_normalization_options resource type_url use_downstream_protocol_config value via`) {
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

// TestClosedMessagesAreEnvoys holds the messages that take no other fields against Envoy's API, as
// go-control-plane has it: both have the same fields. Those of lists of filters have no stages.
func TestClosedMessagesAreEnvoys(t *testing.T) {
	closed, enums := 0, 0
	var hold func(name string, w want, d protoreflect.MessageDescriptor)
	hold = func(name string, w want, d protoreflect.MessageDescriptor) {
		var there []string
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			there = append(there, string(f.Name()))
			if e := f.Enum(); e != nil && w.fields[string(f.Name())].names != nil {
				enums++
				var names []string
				for j := range e.Values().Len() {
					names = append(names, string(e.Values().Get(j).Name()))
				}
				if diff := cmp.Diff(names, w.fields[string(f.Name())].names); diff != "" {
					t.Errorf("%s.%s (-Envoy +here):\n%s", name, f.Name(), diff)
				}
			}
			if below, ok := w.fields[string(f.Name())]; ok && f.Message() != nil && (below.fields != nil || below.closed) {
				hold(name+"."+string(f.Name()), below, f.Message())
			}
		}
		slices.Sort(there)
		if !w.closed {
			return
		}
		closed++
		ours := slices.Sorted(maps.Keys(w.fields))
		if d.FullName() == "envoy.config.route.v3.RateLimit" && w.fields["stage"].one == "" {
			ours = slices.Sorted(slices.Values(append(ours, "stage", "disable_key")))
		}
		if diff := cmp.Diff(there, ours); diff != "" {
			t.Errorf("%s (-Envoy +here):\n%s", name, diff)
		}
	}
	hold("RateLimit", rateLimitWant, (&ratelimitv3.RateLimit{}).ProtoReflect().Descriptor())
	hold("RateLimitPerRoute", perRouteWant, (&ratelimitv3.RateLimitPerRoute{}).ProtoReflect().Descriptor())
	hold("rate_limits", policiesWant, (&routev3.RateLimit{}).ProtoReflect().Descriptor())
	hold("headers", headersWant, (&routev3.HeaderMatcher{}).ProtoReflect().Descriptor())
	if closed < 60 || enums < 10 {
		t.Errorf("%d messages and %d enums are held", closed, enums)
	}
}

// TestFieldsThatEnvoyRejects has what Envoy 1.40 does not take: fields that it lacks, as it is without
// those that it needs, and deprecated ones. A dump of a later Envoy may have the first, that of a running
// one the last.
func TestFieldsThatEnvoyRejects(t *testing.T) {
	list := func(list string) string {
		return strings.Replace(listenerText[1:], "{ request_headers: { header_name: x-user, descriptor_key: user } }", list, 1)
	}
	for name, tt := range map[string]struct {
		files []File
		want  string
	}{
		"an action":             {[]File{{"f", []byte(list("{ newer: {} }"))}}, "f:18:52: Envoy 1.40 has no field newer here, and rejects it: leave it out"},
		"no action":             {[]File{{"f", []byte(list("{}"))}}, "f:18:43: actions: Envoy needs one of "},
		"two actions":           {[]File{{"f", []byte(list("{ remote_address: {}, source_cluster: {} }"))}}, "f:18:43: actions: Envoy takes remote_address or source_cluster alone: leave out all but one"},
		"a multiplier":          {[]File{{"f", []byte(list("{ remote_address: {} }], limit: { rate_limit: { unit: HOUR, unit_multiplier: 2 } }, hits_addend: { number: 1 } }, { actions: [{ remote_address: {} }"))}}, "f:18:120: Envoy 1.40 has no field unit_multiplier here, and rejects it: leave it out, or write the limit into the rules, which have it"},
		"misspelt":              {[]File{{"f", []byte(list("{ remote_addr: {} }"))}}, `f:18:58: Envoy 1.40 has no field remote_addr here, and rejects it: leave it out; did you mean "remote_address", `},
		"without its key":       {[]File{{"f", []byte(list("{ request_headers: { header_name: x-user } }"))}}, "f:18:62: request_headers: Envoy rejects it without descriptor_key: add it"},
		"deprecated":            {[]File{{"f", []byte(list("{ dynamic_metadata: { descriptor_key: k, metadata_key: { key: a, path: [{ key: b }] } } }"))}}, "f:18:63: Envoy 1.40 rejects dynamic_metadata, which is deprecated: write metadata"},
		"of a later one":        {[]File{{"f", []byte(list("{ newer: {} }"))}, dumpOf("41")}, ""},
		"not of this one":       {[]File{{"f", []byte(list("{ newer: {} }"))}, dumpOf("40")}, "f:18:52: Envoy 1.40 has no field newer here"},
		"of a running one":      {[]File{{"f", []byte(list("{ dynamic_metadata: { descriptor_key: k, metadata_key: { key: a, path: [{ key: b }] } } }"))}, dumpOf("40")}, ""},
		"a word without quotes": {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: Off } }"))}}, "f:18:78: descriptor_value: found Off, want text: put it in quotes, without which it is true or false"},
		"with quotes":           {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: 'Off' } }"))}}, ""},
		"no such word":          {[]File{{"f", []byte(list("{ generic_key: { descriptor_value: oFF } }"))}}, ""},
	} {
		_, err := Read(tt.files)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
	deprecated := list("{ dynamic_metadata: { descriptor_key: k, metadata_key: { key: a, path: [{ key: b }] } } }")
	for key, allows := range map[string]bool{"envoy.deprecated_features:envoy.config.route.v3.RateLimit.Action.dynamic_metadata": true, "other": false} {
		bootstrap := File{"b", []byte(`{"static_resources": {}, "layered_runtime": {"layers": [{"static_layer": {"` + key + `": true}}]}}`)}
		if _, err := Read([]File{bootstrap, {"f", []byte(deprecated)}}); (err == nil) != allows {
			t.Errorf("deprecated beside a runtime of %s: %v", key, err)
		}
	}
}

// TestPartsMayLackFields has an EnvoyFilter that changes a filter of others: what it does not say, they do.
func TestPartsMayLackFields(t *testing.T) {
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
	if _, err := Read([]File{{"f", []byte(strings.Replace(filter, "timeout: 1s", "timeouts: 1s", 1))}}); err == nil || !strings.Contains(err.Error(), `no field timeouts here, and rejects it: leave it out; did you mean "timeout"?`) {
		t.Error(err)
	}
}
