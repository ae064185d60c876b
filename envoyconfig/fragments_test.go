package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	routesText = `name: shop
virtual_hosts:
  - name: all
    domains: ["*"]
    rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]
    routes: [{ match: { prefix: / }, route: { cluster: backend } }]
`
	hostText = `name: all
domains: ["*"]
routes: [{ match: { prefix: / }, route: { cluster: backend, rate_limits: [{ actions: [{ remote_address: {} }] }] } }]
`
	filterText = `name: limit
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
  domain: shop
  timeout: 0.25s
  rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: outbound|8081||sluice } } }
`
	localText = `name: envoy.filters.http.local_ratelimit
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
  stat_prefix: local
`
	patchPolicyText = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyPatchPolicy\nspec:\n  jsonPatches:\n    - operation: { op: add, path: /x, value: { " +
		"name: limit, typed_config: { '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop, timeout: 1s } } }\n" +
		"    - operation: { op: add, path: /y, value: [{ actions: [{ request_headers: { header_name: x, descriptor_key: usr } }] }] }\n"
	retiredText   = "http_filters: [{ name: envoy.rate_limit, config: { domain: a } }, { name: envoy.rate_limit, config: {} }]"
	noteElsewhere = "warning: unknown: no file contains a rate limit filter, so nothing is checked: also pass its listener, or the output of /config_dump"
	noteLocal     = "note: unknown: all rate limit filters are local and do not call a service"
	noteParts     = "note: unknown: these files are excerpts of a configuration, checked one by one; to check the complete configuration, with clusters and routes from other sources, pass the output of the proxy's /config_dump"
	noteApplied   = "note: unknown: these files are excerpts of a configuration, merged as istiod merges them; to check the complete configuration, with clusters and routes from other sources, pass the output of the proxy's /config_dump"
)

// TestFragments covers excerpts of a configuration: mistakes are errors, missing parts are not.
func TestFragments(t *testing.T) {
	envoyFilter := func(applyTo, value string) string {
		return "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nspec:\n  configPatches:\n    - applyTo: " + applyTo + "\n      patch:\n        value:\n          " +
			indent(value, "          ") + "\n        operation: " + map[string]string{"HTTP_FILTER": "INSERT_BEFORE", "VIRTUAL_HOST": "MERGE"}[applyTo] + "\n"
	}
	host := "rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]\n"
	local := strings.Replace(listenerText[1:], "            - name: limit\n              typed_config:\n                \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit\n                domain: shop\n",
		"            - "+indent(localText, "              ")+"\n", 1)
	for name, tt := range map[string]struct {
		files []string
		want  []string
	}{
		"routes alone":                      {[]string{routesText}, []string{"0:1:1: " + noteElsewhere}},
		"a virtual host alone":              {[]string{hostText}, []string{"0:1:1: " + noteElsewhere}},
		"a route alone":                     {[]string{"match: { prefix: / }\nroute: { cluster: a, rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }] }"}, []string{"0:1:1: " + noteElsewhere}},
		"lists alone":                       {[]string{host}, []string{"0:1:1: " + noteElsewhere}},
		"routes without any":                {[]string{"virtual_hosts: [{ name: a, domains: [a], routes: [] }]"}, []string{"0:1:1: " + noteElsewhere}},
		"a filter alone":                    {[]string{filterText}, []string{"0:1:1: " + noteParts, `0:4:11: note: unknown: these files contain no rate_limits, so the descriptors of domain "shop" are unknown: also pass the virtual hosts or routes`}},
		"a filter and routes":               {[]string{filterText, routesText}, []string{"0:1:1: " + noteParts}},
		"the first of two objects":          {[]string{envoyFilter("HTTP_FILTER", filterText)}, []string{"0:1:1: " + noteApplied, `0:11:21: note: unknown: these files contain no rate_limits, so the descriptors of domain "shop" are unknown: also pass the virtual hosts or routes`}},
		"the second of two objects":         {[]string{envoyFilter("VIRTUAL_HOST", host)}, []string{"0:1:1: " + noteElsewhere}},
		"both, in files of their own":       {[]string{envoyFilter("HTTP_FILTER", filterText), envoyFilter("VIRTUAL_HOST", host)}, []string{"0:1:1: " + noteApplied}},
		"local limits alone":                {[]string{local}, []string{"0:10:17: " + noteLocal}},
		"local limits as a part":            {[]string{envoyFilter("HTTP_FILTER", localText), envoyFilter("VIRTUAL_HOST", strings.Replace(host, "user }", "other }", 1))}, []string{"0:10:13: " + noteLocal}},
		"routes that are not given":         {[]string{strings.NewReplacer("domain: shop", "domain: shop\n                timeout: 1s").Replace(listenerText[1:strings.Index(listenerText, "route_config:")]) + "rds: { route_config_name: other, config_source: { ads: {} } }\n"}, []string{`0:6:11: note: unknown: the routes of listener ingress are not in these files: pass the output of /config_dump, or also the RouteConfiguration "other"`}},
		"listeners that are not given":      {[]string{"dynamic_resources: { lds_config: { ads: {} } }\nstatic_resources: {}"}, []string{"0:1:34: note: unknown: no listener in these files has a rate limit filter, but the files do not contain all listeners: pass the output of /config_dump"}},
		"endpoints and secrets beside":      {[]string{"- { clusterName: a, endpoints: [] }", "- { name: s, tlsCertificate: {} }\n- { name: t, '@type': x/envoy.extensions.transport_sockets.tls.v3.Secret }", filterText, routesText}, []string{"2:1:1: " + noteParts}},
		"lists of endpoints and secrets":    {[]string{"resources: [{ '@type': x/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: a }]", "resources: [{ '@type': x/envoy.extensions.transport_sockets.tls.v3.Secret, name: s }]", filterText, routesText}, []string{"2:1:1: " + noteParts}},
		"a filter that is a struct":         {[]string{"- { name: w, typed_config: { '@type': x/udpa.type.v1.TypedStruct, type_url: x/envoy.extensions.filters.http.wasm.v3.Wasm, value: {} } }", filterText, routesText}, []string{"1:1:1: " + noteParts}},
		"a route after one of another file": {[]string{filterText, "match: { prefix: / }\nroute: { cluster: a }", "match: { prefix: /x }\nroute: { cluster: a, rate_limits: " + userPolicy + " }"}, []string{"0:1:1: " + noteParts}},
		"clusters alone":                    {[]string{"name: a\nload_assignment: { cluster_name: a }"}, []string{"0:1:1: note: unknown: no listener in these files has a rate limit filter, but the files do not contain all listeners: pass the output of /config_dump"}},
		"a filter that is not looked at": {[]string{"filter_chains: [{ filters: [{ name: edge, typed_config: { '@type': x/envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy, thrift_filters: [{ typed_config: " +
			"{ '@type': x/envoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimit } }] } }] }]"}, []string{"0:1:165: note: unknown: this is the only rate limit filter, and it is not checked: only filters in http_filters of a connection manager are, and those of config_discovery whose resource, or the output of /config_dump, is passed, too"}},
	} {
		if diff := cmp.Diff(tt.want, checkTexts(t, tt.files...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWrappers covers a listener and routes as tools print them.
func TestWrappers(t *testing.T) {
	bare := strings.Replace(listenerText[1:], "domain: shop", "domain: shop\n                timeout: 1s", 1)
	_, manager, _ := strings.Cut(bare, "HttpConnectionManager\n          ")
	for name, text := range map[string]string{
		"egctl x translate": "xds:\n  default/eg:\n    configs:\n      - '@type': type.googleapis.com/envoy.admin.v3.ListenersConfigDump\n        dynamicListeners:\n          - activeState:\n              listener:\n                " +
			indent(bare, "                "),
		"egctl config envoy-proxy listener": "default:\n  eg:\n    dynamicListeners:\n      - activeState:\n          listener:\n            " + indent(bare, "            "),
		"a ConfigMap":                       "apiVersion: v1\nkind: ConfigMap\ndata:\n  README: not this\n  envoy.yaml: |\n    static_resources:\n      listeners:\n        - " + indent(bare, "          "),
		"a list of a tool":                  "listeners:\n  - " + indent(bare, "    "),
		"a connection manager":              strings.ReplaceAll(manager, "\n          ", "\n"),
	} {
		if got := checkTexts(t, text); len(got) > 0 {
			t.Errorf("%s: found %q", name, got)
		}
		got := checkTexts(t, strings.Replace(text, "descriptor_key: user", "descriptor_key: usr", 1))
		line, col := 0, 0
		for i, l := range strings.Split(text, "\n") {
			if at := strings.Index(l, "{ actions:"); at >= 0 {
				line, col = i+1, at+1
			}
		}
		if want := fmt.Sprintf("0:%d:%d: error: unmatched: ", line, col); len(got) != 2 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: found %q, want %s", name, got, want)
		}
	}
}

// TestEnvoyPatchPolicy checks that the values of patches are checked.
func TestEnvoyPatchPolicy(t *testing.T) {
	got := checkTexts(t, patchPolicyText)
	if want := `0:6:47: error: unmatched: no rule of domain "shop" can match (usr, *)`; len(got) != 3 || !strings.HasPrefix(got[1], want) {
		t.Errorf("found %q, want %s", got, want)
	}
}

// TestTemplate covers a file that a tool has not rendered yet.
func TestTemplate(t *testing.T) {
	_, err := Read([]File{{"f", []byte("{{ if .Values.on }}\nkind: EnvoyFilter\n{{ end }}\n")}})
	if err == nil || !strings.HasPrefix(err.Error(), "f:2:1: invalid YAML") || !strings.HasSuffix(err.Error(), "this looks like a template: pass its rendered output, such as that of helm template") {
		t.Error(err)
	}
}

// TestRulesOfSeveralEnvoys covers rules of which some are meant for another Envoy.
func TestRulesOfSeveralEnvoys(t *testing.T) {
	c, err := Read([]File{{"0", []byte(strings.Replace(listenerText[1:], "domain: shop", "domain: shop\n                timeout: 1s", 1))}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n---\ndomain: mail\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")) {
		got = append(got, f.String())
	}
	want := []string{`rules.yaml:5:15: warning: unsent: no filter uses the domain "mail", so its rules limit nothing here: set the domain of a rate limit filter`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCheckNetworkFilter covers a network filter.
func TestCheckNetworkFilter(t *testing.T) {
	const text = "filter_chains: [{ filters: [{ name: edge, typed_config: { '@type': x/envoy.extensions.filters.network.ratelimit.v3.RateLimit, stat_prefix: a, domain: shop, timeout: 0.25s, descriptors: [{ entries: [{ key: user, value: al }] }] } }, { name: tcp, typed_config: { '@type': x/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: b, cluster: new } }] }]"
	if got := checkTexts(t, text); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	got := checkTexts(t, strings.Replace(text, "key: user", "key: usr", 1))
	if want := `no rule of domain "shop" can match (usr, al): `; len(got) != 2 || !strings.Contains(got[0], want) || !strings.Contains(got[1], "no filter sends a descriptor that user can match: add it to the descriptors of a network filter") {
		t.Errorf("found %q, want %s", got, want)
	}
	// Its timeout and cluster are checked like those of the HTTP filter.
	const bootstrap = "layered_runtime: { layers: [{ name: a, static_layer: { ratelimit: { tcp_filter_enabled: 0 } } }] }\nstatic_resources:\n  listeners: [{ address: { pipe: { path: a } }, "
	service := ", failure_mode_deny: true, rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: %s } } }, stat_prefix: a"
	const clusters = " }]\n  clusters: [{ name: old }, { name: new, http2_protocol_options: {} }]\n"
	for from, wants := range map[string][]string{
		"old":  {"the runtime has ratelimit.tcp_filter_enabled: 0, at 0:1:89, so the filter never calls the service", `cluster "old" does not speak HTTP/2`},
		"new":  {`cluster "new": it allows at most 1024 concurrent calls`, "it has no gRPC health check", "waits 20 ms, too short for a busy node, and then closes the connection"},
		"gone": {`cluster "gone" of the service is not in these files`},
	} {
		of := strings.Replace(strings.Replace(text, ", timeout: 0.25s", "", 1), ", stat_prefix: a", fmt.Sprintf(service, from), 1)
		got := strings.Join(checkTexts(t, bootstrap+of+clusters), "\n")
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("of cluster %s: found %s\nwant %s", from, got, want)
			}
		}
	}
}

// TestWarningsOncePerFile covers two filters with the same problem, which is reported once, and two clusters with others.
func TestWarningsOncePerFile(t *testing.T) {
	listener := strings.Replace(completeListener, "domain: shop", "domain: shop\n                rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: a } } }", 1)
	text := "static_resources:\n  listeners:\n    - " + indent(listener, "      ") + "\n    - " + indent(strings.Replace(listener, "cluster_name: a", "cluster_name: b", 1), "      ") + `
  clusters:
    - { name: a, http2_protocol_options: {} }
    - { name: b, http2_protocol_options: {}, circuit_breakers: { thresholds: [{ max_requests: 2000 }] } }
`
	got := checkTexts(t, text)
	if len(got) != 3 || !strings.Contains(got[0], "; the same applies to 1 other line of this file, the next is 34") || !strings.Contains(got[1], `cluster "a": it allows at most 1024`) || !strings.Contains(got[2], `cluster "b": it has no gRPC`) {
		t.Errorf("found %q", got)
	}
	// If the first place is acknowledged, the second is reported.
	got = checkTexts(t, strings.Replace(text, "- { name: a, http2", "# sluice:allow cluster\n    - { name: a, http2", 1))
	if len(got) != 2 || !strings.Contains(got[1], `cluster "b": it has no gRPC health check`) {
		t.Errorf("found %q", got)
	}
}

// checkTexts returns the findings of files, which are named by their index.
func checkTexts(t *testing.T, texts ...string) []string {
	t.Helper()
	files := make([]File, len(texts))
	for i, text := range texts {
		files[i] = File{strconv.Itoa(i), []byte(text)}
	}
	c, err := Read(files)
	if err != nil {
		return []string{err.Error()}
	}
	return findingsOf(t, c)
}
