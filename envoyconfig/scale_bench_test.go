package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// largeInputs write configurations of n parts and their rules. Each must take a time proportional to n.
var largeInputs = map[string]func(n int) (envoy, rules string){
	"list": func(n int) (string, string) {
		var list, rules strings.Builder
		for i := range n {
			fmt.Fprintf(&list, "- actions: [{ generic_key: { descriptor_key: path, descriptor_value: v%d } }]\n", i)
			fmt.Fprintf(&rules, "  - { key: path, value: v%d, rate_limit: { unit: hour, requests_per_unit: 9 } }\n", i)
		}
		return hostWith("rate_limits:\n" + list.String() + toBackend), rules.String()
	},
	"routes": func(n int) (string, string) {
		var list, rules strings.Builder
		list.WriteString("rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]\nroutes:\n")
		rules.WriteString("  - { key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }\n")
		for i := range n {
			fmt.Fprintf(&list, "- { match: { path: /v%d }, route: { cluster: backend, include_vh_rate_limits: true, rate_limits: [{ actions: [{ generic_key: { descriptor_key: path, descriptor_value: v%d } }] }] } }\n", i, i)
			fmt.Fprintf(&rules, "  - { key: path, value: v%d, rate_limit: { unit: hour, requests_per_unit: 9 } }\n", i)
		}
		return hostWith(list.String()), rules.String()
	},
	"headers": func(n int) (string, string) { // each element reaches each rule
		var list, rules strings.Builder
		list.WriteString("routes:\n")
		for i := range n {
			fmt.Fprintf(&list, "- { match: { path: /v%d }, route: { cluster: backend, rate_limits: %s } }\n", i, userPolicy)
			fmt.Fprintf(&rules, "  - { key: user, value: v%d, rate_limit: { unit: hour, requests_per_unit: 9 } }\n", i)
		}
		return hostWith(list.String()), rules.String()
	},
	"leases": func(n int) (string, string) { // each element acquires a lease of each rule
		var list, rules strings.Builder
		list.WriteString("rate_limits:\n")
		for i := range n {
			fmt.Fprintf(&list, "- actions: [{ generic_key: { descriptor_key: path, descriptor_value: v%d } }]\n", i)
			fmt.Fprintf(&rules, "  - { key: path, value: v%d, rate_limit: { unit: hour, algorithm: concurrency, requests_per_unit: 9, name: n%d } }\n", i, i)
		}
		return hostWith(list.String() + toBackend), rules.String()
	},
	"misspelt": func(n int) (string, string) {
		var list, rules strings.Builder
		list.WriteString("rate_limits:\n")
		for i := range n {
			fmt.Fprintf(&list, "- actions: [{ generic_key: { descriptor_key: path, descriptor_value: w%d } }]\n", i)
			fmt.Fprintf(&rules, "  - { key: path, value: v%d, rate_limit: { unit: hour, requests_per_unit: 9 } }\n", i)
		}
		return hostWith(list.String() + toBackend), rules.String()
	},
	"listeners": func(n int) (string, string) { // each listener has each route
		n *= 3 // the parts are short
		n /= 10
		var list strings.Builder
		list.WriteString("static_resources:\n  listeners:\n")
		for i := range n {
			fmt.Fprintf(&list, "  - { name: l%d, filter_chains: [{ filters: [{ typed_config: { '@type': x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: s%d, rds: { route_config_name: t }, "+
				"http_filters: [{ name: a, typed_config: { '@type': x/envoy.extensions.filters.http.header_to_metadata.v3.Config } }, { name: b, typed_config: { '@type': x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop } }] } }] }] }\n", i, i)
		}
		list.WriteString("---\nname: t\nvirtual_hosts:\n- name: all\n  domains: ['*']\n  rate_limits: " + userPolicy + "\n  routes:\n")
		for i := range n {
			fmt.Fprintf(&list, "  - { match: { path: /v%d }, route: { cluster: backend, include_vh_rate_limits: true, rate_limits: [{ actions: [{ generic_key: { descriptor_key: path, descriptor_value: v } }] }] } }\n", i)
		}
		return list.String(), "  - { key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }\n  - { key: path, rate_limit: { unit: hour, requests_per_unit: 9 } }\n"
	},
	"files": func(n int) (string, string) { // of a ConfigMap
		var list strings.Builder
		list.WriteString("kind: ConfigMap\ndata:\n")
		for i := range n {
			fmt.Fprintf(&list, "  f%d.yaml: |\n    name: t%d\n    virtual_hosts: [{ name: all, domains: ['*'], rate_limits: %s }]\n", i, i, userPolicy)
		}
		return list.String(), "  - { key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }\n"
	},
	"patches": func(n int) (string, string) {
		var list strings.Builder
		list.WriteString(envoyFilters)
		for i := range n {
			fmt.Fprintf(&list, "---\nkind: EnvoyFilter\nmetadata: { name: e%d, namespace: istio-system }\nspec:\n  configPatches:\n  - applyTo: VIRTUAL_HOST\n    match: { context: GATEWAY, routeConfiguration: { vhost: { name: 'h%d:80' } } }\n    patch: { operation: MERGE, value: { rate_limits: %s } }\n", i, i, userPolicy)
			fmt.Fprintf(&list, "  - applyTo: HTTP_ROUTE\n    match: { context: GATEWAY, routeConfiguration: { vhost: { name: 'h%d:80', route: { name: r } } } }\n    patch: { operation: MERGE, value: { route: { rate_limits: %s } } }\n", i, userPolicy)
		}
		return list.String(), "  - { key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }\n"
	},
}

func hostWith(host string) string {
	i := strings.Index(listenerText, "                domains:")
	return listenerText[1:i] + "                " + indent(`domains: ["*"]`+"\n"+strings.TrimSpace(host), "                ") + "\n"
}

// BenchmarkCheck reads and checks large configurations: twice the parts may take at most 2.5 times as long.
func BenchmarkCheck(b *testing.B) {
	for name, write := range largeInputs {
		for _, n := range []int{1000, 2000, 8000} {
			text, rules := write(n)
			set := ruleSet(b, "domain: shop\ndescriptors:\n"+rules)
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) { readAndCheck(b, text, set) })
		}
	}
}

func readAndCheck(b *testing.B, text string, set *descriptors.Set) {
	b.Helper()
	for b.Loop() {
		c, err := Read([]File{{"envoy.yaml", []byte(text)}})
		if err != nil {
			b.Fatal(err)
		}
		c.Check(set)
	}
}
