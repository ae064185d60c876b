package envoyconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

const shapes = `static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                use_remote_address: true
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: shop
                      stage: 0
                      timeout: 0.25s
                      rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      require_tls: NONE
                      rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]
                      routes: [{ match: { prefix: / }, route: { cluster: sluice } }]
                      typed_per_filter_config: {}
  clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]
`

// TestUnusualShapes reads configurations with values of unusual kinds. The real Envoy and
// envoyconfig must accept the same ones and read equivalent forms equally.
func TestUnusualShapes(t *testing.T) {
	binary := suite.Envoy(t, root)
	for _, tt := range []struct{ old, put, wrong string }{
		{"", "", ""},
		// A single value instead of a list.
		{`domains: ["*"]`, `domains: "*"`, ""},
		{"clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]", "clusters: { name: sluice, load_assignment: { cluster_name: sluice } }", ""},
		{"actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]", "actions: { request_headers: { header_name: x-user, descriptor_key: user } }", ""},
		{`domains: ["*"]`, `domains: ["*", 5]`, "domains: found 5, want text"},
		{`domains: ["*"]`, `domains: 5`, "domains: found 5, want text"},
		{"clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]", "clusters: 5", "clusters: found 5, want an object"},
		{"clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]", "clusters: [5]", "clusters: found 5, want an object"},
		// An object.
		{"match: { prefix: / }", "match: [{ prefix: / }]", "match: found a list of 1, want an object"},
		{"match: { prefix: / }", "match: /", `match: found "/", want an object`},
		{"route: { cluster: sluice }", "route: sluice", `route: found "sluice", want an object`},
		{"typed_per_filter_config: {}", "typed_per_filter_config: []", "typed_per_filter_config: found a list of 0, want an object"},
		{"typed_per_filter_config: {}", "typed_per_filter_config: { a: 5 }", "a: found 5, want an object with @type"},
		{`{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }`, "5", "typed_config: found 5, want an object with @type"},
		// Text.
		{"domain: shop", "domain: 1.5", ""},
		{"domain: shop", "domain: 5", "domain: found 5, want text"},
		{"domain: shop", "domain: true", "domain: found true, want text"},
		{"domain: shop", "domain: [shop]", "domain: found a list of 1, want text"},
		// A number.
		{"stage: 0", `stage: "1"`, ""},
		{"stage: 0", "stage: 1.0", ""},
		{"stage: 0", "stage: null", ""},
		{"stage: 0", "stage: one", `stage: found "one", want a number`},
		{"stage: 0", "stage: true", "stage: found true, want a number"},
		// True or false.
		{"use_remote_address: true", `use_remote_address: "true"`, ""},
		{"use_remote_address: true", "use_remote_address: yes", ""},
		{"use_remote_address: true", "use_remote_address: OFF", ""},
		{"use_remote_address: true", "use_remote_address: { value: true }", ""},
		{"use_remote_address: true", "use_remote_address: 1", "use_remote_address: found 1, want true or false"},
		{"use_remote_address: true", "use_remote_address: maybe", `use_remote_address: found "maybe", want true or false`},
		// A duration.
		{"timeout: 0.25s", "timeout: { seconds: 1, nanos: 5 }", ""},
		{"timeout: 0.25s", "timeout: soon", `timeout: found "soon", want seconds, such as 0.25s`},
		{"timeout: 0.25s", "timeout: 5", "timeout: found 5, want seconds, such as 0.25s"},
		// A name.
		{"require_tls: NONE", "require_tls: 0", ""},
		{"require_tls: NONE", "require_tls: true", "require_tls: found true, want a name"},
	} {
		text := strings.Replace(shapes, tt.old, tt.put, 1)
		file := filepath.Join(t.TempDir(), "envoy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := envoy.Validate(t.Context(), binary, file)
		if (err == nil) != (tt.wrong == "") {
			t.Errorf("%s: Envoy returned %v", tt.put, err)
		}
		_, err = envoyconfig.Read([]envoyconfig.File{{Name: file, Content: []byte(text)}})
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.HasSuffix(err.Error(), ": "+tt.wrong)) {
			t.Errorf("%s: Read returned %v, want an error %q", tt.put, err, tt.wrong)
		}
	}
}

// TestRateLimitFields reads rate limit configurations with unknown or missing fields and with
// values out of range. Read must accept those that Envoy accepts, and reject those with unknown fields.
func TestRateLimitFields(t *testing.T) {
	binary := suite.Envoy(t, root)
	const (
		actions = "actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]"
		action  = "{ request_headers: { header_name: x-user, descriptor_key: user } }"
		service = "rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }"
		filter  = "stage: 0"
		own     = "typed_per_filter_config: {}"
	)
	perRoute := func(fields string) string {
		return `typed_per_filter_config: { envoy.filters.http.ratelimit: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, ` + fields + ` } }`
	}
	metadata := func(fields string) string {
		return "{ metadata: { " + fields + ", metadata_key: { key: a, path: [{ key: b }] } } }"
	}
	for _, tt := range []struct {
		old  string
		puts map[string]bool // whether Envoy accepts the text
	}{
		{actions, map[string]bool{
			actions + ", limit: { rate_limit: { requests_per_unit: 5, unit: HOUR } }":                                               true,
			actions + ", limit: { rate_limit: { requests_per_unit: 5, unit: HOUR, unit_multiplier: 10 } }":                          false,
			actions + ", limit: { rate_limit: { requests_per_unit: 5, unit: HOUR, name: x } }":                                      false,
			actions + ", limit: { rate_limit: { requests_per_unit: 5, unit: hour } }":                                               true,
			actions + ", limit: { rate_limit: { requests_per_unit: 5, unit: WEEK } }":                                               false,
			actions + ", limit: { rate_limit: { requests_per_unit: 4294967296, unit: DAY } }":                                       false,
			actions + ", limit: { rate_limit: { } }":                                                                                true,
			actions + ", limit: { }":                                                                                                false,
			actions + ", limit: 5":                                                                                                  false,
			actions + ", limit: { requests_per_unit: 5, unit: HOUR }":                                                               false,
			actions + ", limit: { dynamic_metadata: { metadata_key: { key: a, path: [{ key: l }] } } }":                             true,
			actions + ", limit: { dynamic_metadata: { metadata_key: { key: a } } }":                                                 false,
			actions + ", limit: { dynamic_metadata: { } }":                                                                          false,
			actions + ", limit: { dynamic_metadata: { metadata_key: { key: a, path: [{ key: l }] } }, rate_limit: { unit: HOUR } }": false,
			actions + ", hits_addend: { number: 1000000000 }":                                                                       true,
			actions + ", hits_addend: { number: 1000000001 }":                                                                       false,
			actions + ", hits_addend: { format: '%BYTES_RECEIVED%' }":                                                               true,
			actions + ", hits_addend: { format: BYTES }":                                                                            false,
			actions + ", hits_addend: { number: 3, negative: true }":                                                                false,
			actions + ", x_ratelimit_option: DRAFT_VERSION_03":                                                                      true,
			actions + ", x_ratelimit_option: 'OFF'":                                                                                 true,
			actions + ", x_ratelimit_option: OFF":                                                                                   false,
			actions + ", x_ratelimit_option: SOMETIMES":                                                                             false,
			actions + ", stage: 10, disable_key: a":                                                                                 true,
			actions + ", stage: 11":                                                                                                 false,
			actions + ", no_such_field: 1":                                                                                          false,
			"actions: []":                                                                                                           false, "stage: 0": false,
		}},
		{action, map[string]bool{
			"{}": false,
			"{ request_headers: { header_name: x-user } }":                                           false,
			"{ request_headers: { header_name: x-user, descriptor_key: no } }":                       false,
			"{ request_headers: { header_name: x-user, descriptor_key: 'no' } }":                     true,
			"{ request_headers: { header_name: x-user, descriptor_key: user, default_value: v } }":   false,
			"{ request_headers: { header_name: x-user, descriptor_key: user }, remote_address: {} }": false,
			"{ request_header: { header_name: x-user, descriptor_key: user } }":                      false,
			"{ generic_key: {} }": false,
			"{ generic_key: { descriptor_value: a, default_value: b } }":                                                     true,
			"{ remote_address: { descriptor_key: a } }":                                                                      false,
			"{ masked_remote_address: { v4_prefix_mask_len: 32, v6_prefix_mask_len: 128 } }":                                 true,
			"{ masked_remote_address: { v4_prefix_mask_len: 33 } }":                                                          false,
			"{ header_value_match: { descriptor_value: v, headers: [{ name: x }] } }":                                        true,
			"{ header_value_match: { descriptor_value: v, headers: [] } }":                                                   false,
			"{ header_value_match: { headers: [{ name: x }] } }":                                                             false,
			"{ header_value_match: { descriptor_value: v, headers: [{ name: x, string_match: { } }] } }":                     false,
			"{ header_value_match: { descriptor_value: v, headers: [{ name: x, string_match: { exact: a, prefix: b } }] } }": false,
			"{ header_value_match: { descriptor_value: v, headers: [{ name: x, regex_match: a }] } }":                        false,
			"{ header_value_match: { descriptor_value: v, headers: [{ name: x, exact_match: a, present_match: true }] } }":   false,
			"{ query_parameters: { query_parameter_name: q } }":                                                              false,
			"{ query_parameter_value_match: { descriptor_value: v, query_parameters: [{ name: q }] } }":                      true,
			"{ query_parameter_value_match: { query_parameters: [{ name: q }] } }":                                           false,
			metadata("descriptor_key: k, source: ROUTE_ENTRY"):                                                               true,
			metadata("descriptor_key: k, source: CLUSTER_LOCALITY_ENTRY"):                                                    true,
			metadata("descriptor_key: k, source: REQUEST"):                                                                   false,
			metadata("default_value: v"):                                                                                     false,
			"{ dynamic_metadata: { descriptor_key: k, metadata_key: { key: a, path: [{ key: b }] } } }":                      false,
			"{ remote_address_match: { descriptor_value: v, address_matcher: { ranges: [] } } }":                             true,
			"{ remote_address_match: { descriptor_value: v } }":                                                              false,
			"{ extension: { name: a } }":                                                                                     false,
		}},
		{filter, map[string]bool{
			"stage: 10": true, "stage: 11": false, "request_type: internal": true, "request_type: INTERNAL": false,
			"enable_x_ratelimit_headers: DRAFT_VERSION_03": true, "enable_x_ratelimit_headers: true": false,
			"filter_enabled: { default_value: { numerator: 5, denominator: MANY } }": false, "filter_enabled: { runtime_key: a }": false,
			"failure_mode: deny": false, "rate_limited_status: 503": false, "rate_limit: 5": false, "enable_retry_after_header: true": true,
			"rate_limits: [{ actions: [{ remote_address: {} }], hits_addend: { number: 2 } }]": true,
			"rate_limits: [{ actions: [{ remote_address: {} }], stage: 3 }]":                   false,
			"rate_limits: [{ actions: [{ remote_address: {} }], disable_key: a }]":             false,
		}},
		{"domain: shop", map[string]bool{`domain: ""`: false, "stat_prefix: a": false, "domain: on": false, "domain: 'on'": true}},
		{service, map[string]bool{
			"rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice } } }":                               true,
			"rate_limit_service: { transport_api_version: v3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }":    true,
			"rate_limit_service: { transport_api_version: 2, grpc_service: { envoy_grpc: { cluster_name: sluice } } }":     true,
			"rate_limit_service: { transport_api_version: 1, grpc_service: { envoy_grpc: { cluster_name: sluice } } }":     false,
			"rate_limit_service: { transport_api_version: V2, grpc_service: { envoy_grpc: { cluster_name: sluice } } }":    false,
			"rate_limit_service: { transport_api: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }":            false,
			"rate_limit_service: { grpc_service: {} }":                                                                     false,
			"rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: '' } } }":                                   false,
			"rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: sluice, authority: a }, timeout: 0.25s } }": true,
		}},
		{own, map[string]bool{
			perRoute("vh_rate_limits: INCLUDE"): true, perRoute("vh_rate_limits: SOME"): false, perRoute("timeout: 1s"): false,
			perRoute("override_option: OVERRIDE_POLICY, domain: a"):                                                                     true,
			perRoute("rate_limits: [{ actions: [{ remote_address: {} }], limit: { rate_limit: { unit: HOUR, unit_multiplier: 2 } } }]"): false,
		}},
	} {
		for put, accepts := range tt.puts {
			text := strings.Replace(shapes, tt.old, put, 1)
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			wrong := envoy.Validate(t.Context(), binary, file)
			if (wrong == nil) != accepts {
				t.Errorf("%s: Envoy returned %v", put, wrong)
			}
			_, err := envoyconfig.Read([]envoyconfig.File{{Name: file, Content: []byte(text)}})
			if unknown := strings.Contains(fmt.Sprint(wrong), "no such field"); accepts && err != nil || unknown && err == nil {
				t.Errorf("%s: Read returned %v", put, err)
			}
		}
	}
}
