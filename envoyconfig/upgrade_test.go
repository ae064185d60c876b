package envoyconfig

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestFiltersOfUpgrades covers a rate limit filter that is among the filters of an upgrade only. Per-route configuration
// for its name has an effect.
func TestFiltersOfUpgrades(t *testing.T) {
	text := listenerText
	i, j := strings.Index(text, "            - name: limit"), strings.Index(text, "            - name: router")
	own := text[i:j]
	text = text[:i] + text[j:]
	const routes = "          route_config:\n"
	k := strings.Index(text, routes)
	filters := own + text[i:k]
	text = text[:k] + "          upgrade_configs:\n          - upgrade_type: websocket\n            filters:\n" + filters + text[k:]
	text = strings.Replace(text, "route: { cluster: backend } }]", `route: { cluster: backend },
                  typed_per_filter_config: { limit: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: INCLUDE } } }]`, 1)
	c, err := Read([]File{{"envoy.yaml", []byte(text)}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")) {
		if f.Severity == rules.Error {
			t.Error(f)
		}
	}
	const want = "nothing: unknown: the request has upgrade: websocket"
	if got := callsText(t, c, "http://a/", "x-user: al", "upgrade: websocket", "connection: upgrade"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
