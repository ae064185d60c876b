package envoyconfig

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// TestDumpOfOlderEnvoy covers a filter without typed_config, which Envoy 1.19 identified by its name.
func TestDumpOfOlderEnvoy(t *testing.T) {
	const text = `{"configs": [
  {"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump",
   "dynamic_listeners": [{"active_state": {"listener": {"filter_chains": [{"filters": [{"typed_config": {
    "@type": "type.googleapis.com/` + api.ConnectionManager + `",
    "http_filters": [
     {"name": "envoy.filters.http.rbac"},
     {"typed_config": {"@type": "type.googleapis.com/` + api.RateLimit + `", "domain": "shop"}},
     {"typed_config": {"@type": "type.googleapis.com/` + api.Router + `"}}
    ],
    "rds": {"route_config_name": "main"}}}]}]}}}]},
  {"@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump",
   "dynamic_route_configs": [{"route_config": {"name": "main", "virtual_hosts": [{
    "domains": ["*"],
    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "backend", "rate_limits": [
     {"actions": [{"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}]}
    ]}}]}]}}]}
]}`
	c, err := Read([]File{{"dump.json", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := callsText(t, c, "http://a/", "x-user: al"); got != "shop: (user, al)" {
		t.Errorf("calls are %s, want shop: (user, al)", got)
	}
}
