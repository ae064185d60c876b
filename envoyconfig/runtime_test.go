package envoyconfig

import (
	"strings"
	"testing"
)

// TestRuntimeLayers disables the filter by a static layer, with later layers that may enable it again.
func TestRuntimeLayers(t *testing.T) {
	const off = `{"static_layer": {"ratelimit.http_filter_enabled": 0}}`
	for layers, want := range map[string]struct {
		calls string
		found bool
	}{
		off: {"shop: nothing: the runtime has ratelimit.http_filter_enabled: 0, at runtime.json", true},
		off + `, {"name": "admin", "admin_layer": {}}`:                                             {"shop: nothing: the runtime has ratelimit.http_filter_enabled: 0, at runtime.json", true},
		off + `, {"name": "r", "rtds_layer": {}}`:                                                  {"shop: nothing: unknown: the runtime has ratelimit.http_filter_enabled: 0, at runtime.json", false},
		off + `, {"name": "d", "disk_layer": {}}`:                                                  {"shop: nothing: unknown: the runtime has ratelimit.http_filter_enabled: 0, at runtime.json", false},
		`{"name": "r", "rtds_layer": {}}, ` + off:                                                  {"shop: nothing: the runtime has ratelimit.http_filter_enabled: 0, at runtime.json", true},
		off + `, {"static_layer": {"ratelimit": {"http_filter_enabled": 100}}}, {"rtds_layer":{}}`: {"shop: (user, al)", false},
	} {
		c, err := Read([]File{
			{"envoy.yaml", []byte(listenerText)},
			{"runtime.json", []byte(`{"static_resources": {}, "layered_runtime": {"layers": [` + layers + `]}}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := callsText(t, c, "http://a/", "x-user: al"); !strings.HasPrefix(got, want.calls) {
			t.Errorf("%s: %s, want %s", layers, got, want.calls)
		}
		found := false
		for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")) {
			found = found || f.Code == NoEffect && strings.Contains(f.Message, "so the filter never calls the service")
		}
		if found != want.found {
			t.Errorf("%s: found is %v", layers, found)
		}
	}
}

// TestRedirectsToHTTPS covers x-forwarded-proto from a proxy that terminates TLS.
func TestRedirectsToHTTPS(t *testing.T) {
	host := "require_tls: ALL\nrate_limits: [{ actions: [{ generic_key: { descriptor_value: v } }] }]\n" + toBackend
	const want = "nothing: unknown: require_tls is ALL: x-forwarded-proto: whether Envoy trusts"
	if got := callsText(t, proxy(t, host), "http://a/", "x-forwarded-proto: https"); !strings.HasPrefix(got, want) {
		t.Errorf("calls are %s, want %s", got, want)
	}
}
