package envoyconfig

import (
	"fmt"
	"strings"
	"testing"
)

// listenerText is a listener with a rate limit filter. Tests replace its routes and the fields of the filter.
const listenerText = `
name: ingress
filter_chains:
  - filters:
      - name: manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          http_filters:
            - name: limit
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                domain: shop
            - name: router
              typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
              - name: all
                domains: ["*"]
                rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]
                routes: [{ match: { prefix: / }, route: { cluster: backend } }]
`

// completeListener is the listener with all fields that Envoy requires.
var completeListener = strings.NewReplacer("\nfilter_chains:", "\naddress: { pipe: { path: a } }\nfilter_chains:", "          http_filters:", "          stat_prefix: a\n          http_filters:", "cluster: backend", "cluster_header: x-backend").Replace(listenerText)[1:]

// indent indents text, except its first line, for a key of YAML.
func indent(text, by string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}

// TestReadForms checks that each form of configuration results in the same listener and descriptor.
func TestReadForms(t *testing.T) {
	const limited = `{ "@type": x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, http_filters: [{ typed_config: { "@type": x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: other } }], route_config: {} }`
	const listener = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener` + "\n"
	for name, text := range map[string]string{
		"bootstrap":          "static_resources:\n  listeners:\n    - " + indent(listenerText, "      "),
		"xDS resources":      "version_info: '1'\nresources:\n  - " + indent(listener+listenerText[1:], "    "),
		"wrapped resources":  "resources:\n  - name: x\n    resource:\n      " + indent(listener+listenerText[1:], "      "),
		"one resource":       listener + listenerText[1:],
		"resource, no @type": listenerText[1:],
		"list, as istioctl":  "- " + indent(listenerText, "  "),
		"second document":    "node: { id: x }\nstatic_resources: {}\n---\n" + listener + listenerText[1:],
		"camelCase":          "staticResources:\n  listeners:\n    - " + indent(camel.Replace(listenerText), "      "),
		"config_dump": `configs:
  - "@type": type.googleapis.com/envoy.admin.v3.BootstrapConfigDump
    bootstrap: { static_resources: { listeners: [{ name: not looked at }] } }
  - "@type": type.googleapis.com/envoy.admin.v3.ListenersConfigDump
    dynamic_listeners:
      - name: ingress
        warming_state: { listener: { name: other, filter_chains: [{ filters: [{ typed_config: &limited ` + limited + ` }] }] } }
        active_state:
          listener:
            ` + indent(listenerText, "            ") + `
  - "@type": type.googleapis.com/envoy.admin.v3.RoutesConfigDump
    static_route_configs: [{ route_config: *limited }]`,
		"TypedStruct": "static_resources:\n  listeners:\n    - " + indent(strings.Replace(listenerText,
			`                "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                domain: shop
`, `                "@type": type.googleapis.com/xds.type.v3.TypedStruct
                type_url: type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                value: { domain: shop }
`, 1), "      "),
	} {
		c, err := Read([]File{{"envoy.yaml", []byte(text)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := callsText(t, c, "GET http://a/", "x-user: al"); got != "shop: (user, al)" {
			t.Errorf("%s: calls are %s, want shop: (user, al)", name, got)
		}
	}
}

var camel = strings.NewReplacer("filter_chains", "filterChains", "typed_config", "typedConfig", "http_filters", "httpFilters",
	"route_config", "routeConfig", "virtual_hosts", "virtualHosts", "rate_limits", "rateLimits", "request_headers", "requestHeaders",
	"header_name", "headerName", "descriptor_key", "descriptorKey")

// callsText returns Envoy's calls for a request as text: the domain and descriptors of each, or the reason why there is
// no call.
func callsText(t *testing.T, c *Config, line string, headers ...string) string {
	t.Helper()
	r, err := ParseRequest(line)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		parsed, err := ParseHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		r.Headers = append(r.Headers, parsed)
	}
	a, err := c.Calls(r)
	if err != nil {
		return "error: " + err.Error()
	}
	all := []string{}
	if a.NotCalled != "" {
		all = append(all, "nothing: "+a.NotCalled)
	}
	for _, call := range a.ByFilter {
		parts := []string{}
		if call.NotCalled != "" {
			parts = append(parts, "nothing: "+call.NotCalled)
		}
		for i := range call.Descriptors {
			d := &call.Descriptors[i]
			switch {
			case d.Unknown != "":
				parts = append(parts, "unknown: "+d.Unknown)
			case d.NotSent != "":
				parts = append(parts, "not sent: "+d.NotSent)
			default:
				parts = append(parts, d.String())
			}
		}
		all = append(all, call.Domain+": "+strings.Join(parts, " "))
	}
	return strings.Join(all, "\n")
}

// TestRoutesByName covers routes in another file than the listener.
func TestRoutesByName(t *testing.T) {
	inline := strings.Index(listenerText, "          route_config:")
	listener := listenerText[1:inline] + "          rds: { route_config_name: main }\n"
	table := "name: main\n" + strings.ReplaceAll(listenerText[inline:], "            ", "")
	table = strings.Replace(table, "          route_config:\n", "", 1)
	files := []File{{"lds.yaml", []byte(listener)}, {"rds.yaml", []byte(table)}}
	c, err := Read(files)
	if err != nil {
		t.Fatal(err)
	}
	if got := callsText(t, c, "http://a/", "x-user: al"); got != "shop: (user, al)" {
		t.Errorf("calls are %s", got)
	}
	c, err = Read(files[:1])
	if err != nil {
		t.Fatal(err)
	}
	const want = `error: lds.yaml:6:11: listener ingress has no routes in these files: pass the output of /config_dump, or also the RouteConfiguration "main"`
	if got := callsText(t, c, "http://a/"); got != want {
		t.Errorf("without the routes: %s\nwant %s", got, want)
	}
}

func TestReadErrors(t *testing.T) {
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	var bomb strings.Builder
	bomb.WriteString("a: &a [x, x, x, x, x, x, x, x, x]\n")
	for _, c := range "bcdefghi" {
		fmt.Fprintf(&bomb, "%c: &%c [%s*%c]\n", c, c, strings.Repeat("*"+string(c-1)+", ", 8), c-1)
	}
	for text, want := range map[string]string{
		"":                             "f.yaml:1:1: found nothing, which is not Envoy configuration",
		"domain: shop\ndescriptors: 1": "f.yaml:1:1: found an object with domain, which is not Envoy configuration: want a bootstrap",

		"{ apiVersion: networking.istio.io/v1, kind: VirtualService }": "found an object of kind VirtualService, which is not Envoy configuration: want",
		// Other text.
		"{ apiVersion: v1, kind: Service }": "found an object of kind Service, which is not Envoy configuration: want",
		"just text":                         `f.yaml:1:1: found "just text", which`,
		"[1, 2]":                            "f.yaml:1:1: found a list of 2, which",
		`{"configs": [{}]}`:                 "f.yaml:1:1: found an object with configs, which",
		"a: [":                              "f.yaml:2:1: invalid YAML: ",
		"a: b\n? [c]\n: d":                  "f.yaml:2:3: the name of a field must be text",
		"a: \xff":                           "f.yaml: not valid UTF-8",
		deep:                                "more than 500 levels deep",
		bomb.String():                       "aliases make more than 1048576 values of this file",
	} {
		_, err := Read([]File{{"f.yaml", []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%.40q) = %v, want an error with %q", text, err, want)
		}
	}
	_, err := Read([]File{{"a.yaml", []byte("x: 1")}, {"b.yaml", []byte("y: 1")}})
	if err == nil || !strings.Contains(err.Error(), "a.yaml:1:1") || !strings.Contains(err.Error(), "b.yaml:1:1") {
		t.Errorf("Read of two bad files = %v, want both", err)
	}
}

// TestEquivalentForms covers values that Envoy accepts in several equivalent forms, and unknown fields.
func TestEquivalentForms(t *testing.T) {
	for old, other := range map[string]string{
		`domains: ["*"]`: `domains: "*"`,
		"[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]": "{ actions: { request_headers: { header_name: x-user, descriptor_key: user } } }",
		"[{ match: { prefix: / }, route: { cluster: backend } }]":                             "{ match: { prefix: / }, route: { cluster: backend } }",
		"domain: shop\n": "domain: shop\n                stage: { value: '0x0' }\n                newer: [5]\n",
		"name: ingress":  "name: ingress\nnewer: { a: b }\nlistener_filters: 5",
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
