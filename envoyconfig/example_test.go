package envoyconfig_test

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

const routes = `
static_resources:
  listeners:
    - name: ingress
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: shop
                      timeout: 0.25s
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      rate_limits:
                        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
                        - actions: [{ generic_key: { descriptor_value: everybody } }]
                      routes: [{ name: everything, match: { prefix: / }, route: { cluster: backend } }]
`

// Compute the calls that Envoy makes for a request.
func ExampleConfig_Calls() {
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: []byte(routes)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := envoyconfig.ParseRequest("GET https://shop.example/search")
	if err != nil {
		fmt.Println(err)
		return
	}
	calls, err := config.Calls(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("route", calls.Route, "domain", calls.ByFilter[0].Domain)
	for _, d := range calls.ByFilter[0].Descriptors {
		fmt.Println(d.String(), d.NotSent)
	}
	// Output:
	// route "everything" domain shop
	// (user, -) no header "x-user"
	// (generic_key, everybody)
}

// Find the reasons why rules have no effect.
func ExampleConfig_Check() {
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: []byte(routes)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	configs, found := rulefile.Parse("rules.yaml", []byte("{domain: shop, descriptors: [{key: usr, rate_limit: {unit: minute, requests_per_unit: 60}}]}"))
	set, found := descriptors.Build(configs, found, nil, descriptors.Options{})
	if set == nil {
		fmt.Println(found)
		return
	}
	for _, finding := range config.Check(set) {
		fmt.Println(finding.Severity, finding.Code, "at", finding.Pos)
	}
	// Output:
	// error unmatched at envoy.yaml:21:27
	// error unmatched at envoy.yaml:22:27
	// warning unsent at rules.yaml:1:30
}
