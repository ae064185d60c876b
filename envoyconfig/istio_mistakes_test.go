package envoyconfig

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

const (
	filterPatch = `        operation: INSERT_BEFORE
        value:
          name: envoy.filters.http.ratelimit
`
	hostPatch = `        operation: MERGE
        value:
          rate_limits:
            - actions:
                - request_headers: { header_name: x-user, descriptor_key: user }
`
	serviceOfFilter = `            rate_limit_service:
              transport_api_version: V3
              grpc_service: { envoy_grpc: { cluster_name: sluice } }
`
	secondSelector = "name: sluice-descriptors\n  namespace: istio-system\nspec:\n  workloadSelector:\n    labels: { istio: ingressgateway }\n"
	routesContext  = "    - applyTo: VIRTUAL_HOST\n      match:\n        context: GATEWAY\n"
	routeContext   = "    - applyTo: HTTP_ROUTE\n      match:\n        context: GATEWAY\n"
)

// istioMistakes are planted into examples/istio: each puts a text for another one, and Read or Check says why that is wrong.
var istioMistakes = []struct{ name, old, put, want string }{
	{"behind the router", filterPatch, strings.Replace(filterPatch, "BEFORE", "AFTER", 1), "error: never-asked: the filter stands behind the router, which ends the chain: put it before"},
	{"other contexts", "context: GATEWAY\n        routeConfiguration", "context: SIDECAR_INBOUND\n        routeConfiguration", "error: never-asked: nothing sends the rate_limits of this patch: no listener has them and the filter, at envoyfilter.yaml:12:7: this is for context SIDECAR_INBOUND, that for GATEWAY: make both alike"},
	{"no operation", hostPatch, strings.TrimPrefix(hostPatch, "        operation: MERGE\n"), "the patch has no operation, and Istio rejects it: add operation: MERGE"},
	{"an operation misspelt", hostPatch, strings.Replace(hostPatch, "MERGE", "MERG", 1), `operation: found "MERG", want `},
}

// TestIstioMistakes plants mistakes that people make into a good EnvoyFilter, in which nothing is found.
func TestIstioMistakes(t *testing.T) {
	good := readText(t, "../examples/istio/envoyfilter.yaml")
	set := ruleSet(t, readText(t, "../examples/istio/rules.yaml"))
	check := func(text string) string {
		c, err := Read([]File{{"envoyfilter.yaml", []byte(text)}})
		if err != nil {
			return err.Error()
		}
		var found strings.Builder
		for _, f := range c.Check(set) {
			if f.Severity != rules.Note {
				found.WriteString(f.String() + "\n")
			}
		}
		return found.String()
	}
	if found := check(good); found != "" {
		t.Fatalf("the example: %s", found)
	}
	for _, m := range istioMistakes {
		text := strings.ReplaceAll(good, m.old, m.put)
		if text == good {
			t.Errorf("%s: %q is not in the example", m.name, m.old)
			continue
		}
		if found := check(text); !strings.Contains(found, m.want) || !strings.HasPrefix(found, "envoyfilter.yaml:") {
			t.Errorf("%s: found %s, want %s", m.name, found, m.want)
		}
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
