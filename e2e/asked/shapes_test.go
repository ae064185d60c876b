package asked_test

import (
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

// TestEnvoyJudgesShapesAlike has the real Envoy and envoyconfig read the same
// configuration, in each case with a value of another kind. What one takes, the other
// does; what Envoy takes in two ways means the same here too.
func TestEnvoyJudgesShapesAlike(t *testing.T) {
	binary := suite.Envoy(t, root)
	for _, tt := range []struct{ old, put, wrong string }{
		{"", "", ""},
		// One value for a list of it.
		{`domains: ["*"]`, `domains: "*"`, ""},
		{"clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]", "clusters: { name: sluice, load_assignment: { cluster_name: sluice } }", ""},
		{"actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]", "actions: { request_headers: { header_name: x-user, descriptor_key: user } }", ""},
		{`domains: ["*"]`, `domains: ["*", 5]`, "domains: found 5, want text"},
		{`domains: ["*"]`, `domains: 5`, "domains: found 5, want a list of texts"},
		{"clusters: [{ name: sluice, load_assignment: { cluster_name: sluice } }]", "clusters: 5", "clusters: found 5, want a list of objects"},
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
		{"stage: 0", "stage: -1", "stage: found -1, want a whole number"},
		{"stage: 0", "stage: one", `stage: found "one", want a whole number`},
		{"stage: 0", "stage: true", "stage: found true, want a whole number"},
		// True or false.
		{"use_remote_address: true", `use_remote_address: "true"`, ""},
		{"use_remote_address: true", "use_remote_address: yes", ""},
		{"use_remote_address: true", "use_remote_address: OFF", ""},
		{"use_remote_address: true", "use_remote_address: { value: true }", ""},
		{"use_remote_address: true", "use_remote_address: 1", "use_remote_address: found 1, want true or false"},
		{"use_remote_address: true", "use_remote_address: maybe", `use_remote_address: found "maybe", want true or false`},
		// A duration.
		{"timeout: 0.25s", "timeout: { seconds: 1, nanos: 5 }", ""},
		{"timeout: 0.25s", "timeout: 250ms", `timeout: found "250ms", want seconds, such as 0.25s`},
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
			t.Errorf("%s: Envoy says %v", tt.put, err)
		}
		_, err = envoyconfig.Read([]envoyconfig.File{{Name: file, Content: []byte(text)}})
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.HasSuffix(err.Error(), ": "+tt.wrong)) {
			t.Errorf("%s: Read says %v, want an error %q", tt.put, err, tt.wrong)
		}
	}
}
