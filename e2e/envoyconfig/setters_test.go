package envoyconfig_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// settersCase has filters around a rate limit filter, and the metadata that it reads.
type settersCase struct {
	name          string
	before, after list
	namespace     string
	path          []string
	late          bool
	// route is typed_per_filter_config of the route, upstream are the upstream filters of the
	// router.
	route    object
	upstream list
	// want is true if Envoy sends the descriptor. unknown is true if the computed calls leave open
	// whether it does.
	want, unknown bool
}

func httpFilter(name, typeName string, config object) object {
	with := object{"@type": "type.googleapis.com/envoy.extensions.filters.http." + typeName}
	maps.Copy(with, config)
	return object{"name": name, "typed_config": with}
}

var (
	setsNS  = httpFilter("sets", "set_metadata.v3.Config", object{"metadata": list{object{"metadata_namespace": "ns", "value": object{"a": "b"}}}})
	noToken = httpFilter("tokens", "jwt_authn.v3.JwtAuthentication", object{
		"providers": object{"p": object{"local_jwks": object{"inline_string": `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}`}, "failed_status_in_metadata": "status"}},
		"rules":     list{object{"match": object{"prefix": "/"}, "requires": object{"requires_any": object{"requirements": list{object{"provider_name": "p"}, object{"allow_missing_or_failed": object{}}}}}}},
	})
	shadow = httpFilter("roles", "rbac.v3.RBAC", object{"shadow_rules": object{"action": "ALLOW", "policies": object{
		"p": object{"permissions": list{object{"any": true}}, "principals": list{object{"any": true}}},
	}}})
	readsNS = httpFilter("reads", "rbac.v3.RBAC", object{"shadow_rules": object{"action": "ALLOW", "policies": object{"p": object{
		"permissions": list{object{"any": true}},
		"principals":  list{object{"metadata": object{"filter": "ns", "path": list{object{"key": "a"}}, "value": object{"string_match": object{"exact": "b"}}}}},
	}}}})
	authz = httpFilter("authz", "ext_authz.v3.ExtAuthz", object{"http_service": object{
		"server_uri":             object{"uri": "http://backend", "cluster": "backend", "timeout": "5s"},
		"authorization_response": object{"dynamic_metadata_from_headers": object{"patterns": list{object{"exact": "date"}}}},
	}})
	fault = httpFilter("faults", "fault.v3.HTTPFault", object{
		"delay":           object{"fixed_delay": "0.001s", "percentage": object{"numerator": 100}},
		"filter_metadata": object{"a": "b"},
	})
	rule  = object{"header": "x-case", "on_header_present": object{"key": "a"}, "remove": false}
	named = object{"header": "x-case", "on_header_present": object{"metadata_namespace": "ns", "key": "a"}, "remove": false}
)

func toMetadata(rules ...any) object {
	return httpFilter("headers", "header_to_metadata.v3.Config", object{"request_rules": rules})
}

func code(text string) object {
	return httpFilter("code", "lua.v3.Lua", object{"default_source_code": object{"inline_string": text}})
}

var settersCases = []settersCase{
	{name: "set before", before: list{setsNS}, namespace: "ns", path: []string{"a"}, want: true},
	{name: "set after", after: list{setsNS}, namespace: "ns", path: []string{"a"}},
	{name: "set after the filter and read at the end", after: list{setsNS}, namespace: "ns", path: []string{"a"}, late: true, want: true},
	{name: "tokens", before: list{noToken}, namespace: "envoy.filters.http.jwt_authn", path: []string{"status", "message"}, want: true},
	{name: "tokens by name", before: list{noToken}, namespace: "tokens", path: []string{"status", "message"}},
	{name: "tokens of two filters", before: list{noToken, noToken}, namespace: "envoy.filters.http.jwt_authn", path: []string{"status", "message"}, want: true},
	{name: "roles", before: list{shadow}, namespace: "envoy.filters.http.rbac", path: []string{"shadow_engine_result"}, want: true},
	{name: "roles by name", before: list{shadow}, namespace: "roles", path: []string{"shadow_engine_result"}},
	{name: "roles that only read", before: list{readsNS}, namespace: "ns", path: []string{"a"}},
	{name: "authz", before: list{authz}, namespace: "envoy.filters.http.ext_authz", path: []string{"date"}, want: true},
	{name: "authz by name", before: list{authz}, namespace: "authz", path: []string{"date"}},
	{name: "faults", before: list{fault}, namespace: "envoy.filters.http.fault", path: []string{"a"}},
	{name: "faults by name", before: list{fault}, namespace: "faults", path: []string{"a"}, want: true},
	{name: "headers", before: list{toMetadata(named)}, namespace: "ns", path: []string{"a"}, want: true},
	{name: "headers without a namespace", before: list{toMetadata(rule)}, namespace: "envoy.filters.http.header_to_metadata", path: []string{"a"}, want: true},
	{name: "headers by name", before: list{toMetadata(rule)}, namespace: "headers", path: []string{"a"}},
	{
		name: "headers of the route", before: list{toMetadata(object{"header": "x-none", "on_header_present": object{"key": "a"}})}, namespace: "ns", path: []string{"a"}, want: true,
		route: object{"headers": toMetadata(named)["typed_config"]},
	},
	{name: "code", before: list{code("function envoy_on_request(h) h:streamInfo():dynamicMetadata():set('ns', 'a', 'b') end")}, namespace: "ns", path: []string{"a"}, want: true},
	{name: "code that only reads", before: list{code("function envoy_on_request(h) local m = h:streamInfo():dynamicMetadata():get('ns') end")}, after: list{setsNS}, namespace: "ns", path: []string{"a"}},
	{name: "code that may set", before: list{code("function envoy_on_request(h) local m = h:streamInfo():dynamicMetadata() local n = 'other' m:set(n, 'a', 'b') end")}, namespace: "ns", path: []string{"a"}, unknown: true},
	{name: "upstream", upstream: list{code("function envoy_on_request(h) h:streamInfo():dynamicMetadata():set('ns', 'a', 'b') end")}, namespace: "ns", path: []string{"a"}, late: true, want: true},
	{name: "not set and read at the end", namespace: "ns", path: []string{"a"}, late: true},
	{name: "set upstream and not read at the end", upstream: list{code("function envoy_on_request(h) h:streamInfo():dynamicMetadata():set('ns', 'a', 'b') end")}, namespace: "ns", path: []string{"a"}},
}

// TestFiltersThatSetMetadata compares computed and real calls that depend on metadata set by
// filters.
func TestFiltersThatSetMetadata(t *testing.T) {
	suite.Envoy(t, root)
	var listeners list
	for i, c := range settersCases {
		var path list
		for _, key := range c.path {
			path = append(path, object{"key": key})
		}
		policy := object{"actions": list{object{"metadata": object{"descriptor_key": "k", "metadata_key": object{"key": c.namespace, "path": path}}}}}
		if c.late {
			policy["apply_on_stream_done"] = true
		}
		route := object{"match": object{"prefix": "/"}, "route": object{"cluster": "backend"}}
		if c.route != nil {
			route["typed_per_filter_config"] = c.route
		}
		router := object{}
		if c.upstream != nil {
			codec := httpFilter("codec", "upstream_codec.v3.UpstreamCodec", nil)
			router["upstream_http_filters"] = append(append(list{}, c.upstream...), codec)
		}
		filters := append(append(list{}, c.before...), generator{}.filter("limit", object{"domain": "first"}))
		filters = append(append(filters, c.after...), httpFilter("router", "router.v3.Router", router))
		listeners = append(listeners, listener(fmt.Sprint("l", i), object{
			"stat_prefix": "ingress", "http_filters": filters,
			"route_config": object{"virtual_hosts": list{object{"name": "all", "domains": list{"*"}, "rate_limits": list{policy}, "routes": list{route}}}},
		}))
	}
	a := startTestEnvoy(t, object{"static_resources": object{"listeners": listeners, "clusters": testClusters}})
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for i, c := range settersCases {
		request := envoyconfig.Request{
			Method: "GET", Scheme: "http", Authority: "a", Path: "/", Listener: fmt.Sprint("l", i),
			Headers: []envoyconfig.Header{{Name: caseHeader, Value: strconv.Itoa(i)}},
		}
		calls := a.calls(t, request)
		want := 0
		if c.want {
			want = 1
		}
		if got := a.recorder.await(strconv.Itoa(i), want, ctx.Done()); len(got) != want {
			t.Errorf("%s: Envoy made the calls %v", c.name, got)
		}
		d := calls.ByFilter[0].Descriptors[0]
		if (d.Unknown != "") != (c.want || c.unknown) || (d.NotSent == "") != (c.want || c.unknown) {
			t.Errorf("%s: computed %+v; Envoy sends it: %v", c.name, d, c.want)
		}
	}
}
