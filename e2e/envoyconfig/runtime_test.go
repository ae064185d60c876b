package envoyconfig_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestRuntimeKeys disables the filter and its policies by runtime keys, nested and not, with values
// of all types, and compares the computed calls with those of the real Envoy.
func TestRuntimeKeys(t *testing.T) {
	whole := func(value any) list {
		return list{object{"name": "static", "static_layer": object{"ratelimit.http_filter_enabled": value}}}
	}
	nested := list{object{"name": "static", "static_layer": object{"ratelimit": object{"http_filter_enabled": 0}}}}
	for i, layers := range []list{
		nil, whole(0), whole(100), whole(false), whole(true), whole("false"), whole("0"), whole("off"), whole(0.5), nested,
		append(whole(0), object{"name": "later", "static_layer": object{"ratelimit": object{"http_filter_enabled": 100}}}),
		append(whole(100), object{"name": "later", "static_layer": object{"ratelimit.http_filter_enabled": 0}}),
	} {
		keys := object{
			"zero": 0, "hundred": 100, "no": false, "yes": true, "text-no": "false", "text-yes": "true", "text-zero": "0", "text-hundred": "100",
			"text": "off", "empty": "", "fraction": 0.5, "more": 200, "negative": -1, "capital": "False",
			"object": object{"numerator": 0},
		}
		values := object{}
		for key, value := range keys {
			values["ratelimit."+key+".http_filter_enabled"] = value
		}
		all := append(slices.Clone(layers), object{"name": "elements", "static_layer": values},
			object{"name": "nested", "static_layer": object{"ratelimit": object{"nested": object{"http_filter_enabled": 0}, "again": object{"http_filter_enabled": 0}}}},
			object{"name": "last", "static_layer": object{"ratelimit.again.http_filter_enabled": 100}})
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			compareRuntime(t, all, append(slices.Sorted(maps.Keys(keys)), "nested", "again", "unset"))
		})
	}
}

func compareRuntime(t *testing.T, layers list, keys []string) {
	t.Helper()
	var policies list
	for _, key := range keys {
		policies = append(policies, object{"disable_key": key, "actions": list{object{"generic_key": object{"descriptor_value": key}}}})
	}
	g := generator{}
	config := frame(list{g.filter("limit", object{"domain": "first"})}, object{"virtual_hosts": list{object{
		"name": "all", "domains": list{"*"}, "rate_limits": policies,
		"routes": list{object{"match": object{"prefix": "/"}, "route": object{"cluster": "backend"}}},
	}}}, testClusters)
	config["layered_runtime"] = object{"layers": layers}
	a := startTestEnvoy(t, config)
	request := envoyconfig.Request{
		Method: "GET", Scheme: "http", Authority: "a", Path: "/", Listener: "ingress",
		Headers: []envoyconfig.Header{{Name: caseHeader, Value: "0"}},
	}
	calls := a.calls(t, request)
	var count tally
	want := count.calls(calls)

	if got := a.recorder.callsOf("0"); !agree(want, got) { // all calls are recorded, since Envoy awaited their replies
		t.Errorf("computed %v\nEnvoy made the calls %v", want, got)
	}
}
