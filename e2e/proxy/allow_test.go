//go:build more

package proxy_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// allowFlags returns the flags and rules of examples/tls/teams.yaml.
func allowFlags(t *testing.T) (flags []string, rules string) {
	t.Helper()
	rules = filepath.Join(root, "examples", "tls", "teams.yaml")
	text, err := os.ReadFile(rules)
	must.OK(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#\s+--grpc-allow (\S+)`).FindAllStringSubmatch(string(text), -1) {
		flags = append(flags, "--grpc-allow", m[1])
	}
	if len(flags) != 6 {
		t.Fatalf("the example's flags are %q, want three", flags)
	}
	return flags, rules
}

// teamListeners are listeners for the domains of both teams. On an error some allow the request and
// some deny it.
func teamListeners() []listener {
	routes := `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`
	return []listener{
		{name: "shop", routes: routes, rateLimit: []string{"domain: shop"}},
		{name: "pay", routes: routes, rateLimit: []string{"domain: pay"}},
		{name: "pay passing", routes: routes, rateLimit: []string{"{domain: pay, failure_mode_deny: false}"}},
	}
}

// TestEnvoyIsLimitedToItsDomains runs examples/tls/teams.yaml with three Envoys. Their certificates
// contain a SPIFFE ID, a DNS name, and a name that no list contains.
func TestEnvoyIsLimitedToItsDomains(t *testing.T) {
	t.Parallel()
	const ok, failed = http.StatusOK, http.StatusInternalServerError
	flags, rules := allowFlags(t)
	for name, shopPay := range map[string][2]int{
		"spiffe://cluster.local/ns/shop/sa/envoy":   {ok, failed},
		"spiffe://cluster.local/ns/pay/sa/checkout": {failed, ok},
		"spiffe://cluster.local/ns/ops/sa/envoy":    {failed, failed},
		"edge.example.com":                          {ok, ok},
		"shop.example.com":                          {failed, failed},
	} {
		t.Run(name[strings.LastIndexByte(name, ':')+1:], func(t *testing.T) {
			t.Parallel()
			r := startRotation(t, name)
			limits := startSluice(t, sluice.Options{Args: append(append(r.flags(), flags...), "--config", rules)})
			p := startProxy(t, teamListeners(), r.cluster(t, sluiceName), limits)
			denials := 0.0
			for i, domain := range []string{"shop", "pay"} {
				got, err := p.getFrom(t.Context(), domain, "/", "x-user: al")
				if err != nil || got.status != shopPay[i] {
					t.Fatalf("domain %s: status %d, %v, want %d; log of sluice:\n%s", domain, got.status, err, shopPay[i], limits.Log())
				}
				if limited := got.get("X-Ratelimit-Limit") != ""; limited != (shopPay[i] == ok) {
					t.Errorf("domain %s: the response has a limit: %v", domain, limited)
				}
				if shopPay[i] != ok {
					denials++
					suite.Eventually(t, "the log names the certificate and the domain", func() bool {
						return strings.Contains(limits.Log(), "request denied") && strings.Contains(limits.Log(), name)
					})
				}
			}
			// Envoy treats a rejected call as an error and allows the request without
			// failure_mode_deny.
			got, err := p.getFrom(t.Context(), "pay passing", "/", "x-user: al")
			if err != nil || got.status != ok {
				t.Errorf("with failure_mode_deny: false: status %d, %v, want 200", got.status, err)
			}
			if limited := got.get("X-Ratelimit-Limit") != ""; limited != (shopPay[1] == ok) {
				t.Errorf("with failure_mode_deny: false: the response has a limit: %v", limited)
			}
			if shopPay[1] != ok {
				denials++
			}
			if n := metric(t, limits, "sluice_rejected_requests_total", `reason="not_allowed"`); n != denials {
				t.Errorf("%v denials were counted, want %v", n, denials)
			}
			if n := metric(t, limits, "sluice_tls_handshake_errors_total"); n != 0 {
				t.Errorf("%v handshakes failed, want none, because the certificate of an unlisted name is still trusted", n)
			}
		})
	}
}
