//go:build more

package proxy_test

import (
	"net/http"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestWrongCertificateNames has sluice expect another name than that in Envoy's certificate, and
// vice versa.
func TestWrongCertificateNames(t *testing.T) {
	t.Parallel()
	r := startRotation(t, envoyName)
	config := suite.WriteRules(t, highLimitRules)
	for name, tt := range map[string]struct{ client, server string }{
		"client": {"other.example.com", sluiceName},
		"server": {envoyName, "other.example.com"},
	} {
		limits := startSluice(t, sluice.Options{Args: append(r.flags(), "--grpc-client-san", tt.client, "--config", config)})
		p := startProxy(t, userListeners, r.cluster(t, tt.server), limits)
		if got := p.get(t, "/", "x-user: al"); got.status != http.StatusInternalServerError {
			t.Errorf("wrong name of the %s: status %d, want 500", name, got.status)
		}
		if metric(t, limits, "sluice_tls_handshake_errors_total") == 0 {
			t.Errorf("wrong name of the %s: no failed handshake was counted", name)
		}
	}
}
