package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestRequestsPassDuringOutage checks envoy.yaml's comment on failure_mode_deny: an outage of
// sluice does not affect the service behind Envoy, and limits apply again afterwards.
func TestRequestsPassDuringOutage(t *testing.T) {
	bootstrap, err := os.ReadFile(filepath.Join(root, "envoy.yaml"))
	must.OK(t, err)
	upstream := suite.StartBackend(t)
	first := startSluice(t, storetest.FreeAddress(t))
	proxy := suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: bootstrap,
		Clusters:  map[string][]string{"sluice": {first.Addr("grpc")}, "backend": {upstream.Addr}},
		Patient:   true, // a request whose call times out would pass
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	denials := func(n int) (denied int) {
		t.Helper()
		for range n {
			resp, err := client.Post("http://"+proxy.Addr("ingress")+"/search", "", http.NoBody)
			must.OK(t, err)
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				denied++
			}
		}
		return denied
	}

	// Two per hour pass, but the hour may end during the test.
	if got := denials(10); got < 6 {
		t.Errorf("%d of 10 requests denied, want 8", got)
	}
	if code, err := first.Stop(t.Context()); code != 0 || err != nil {
		t.Errorf("Stop() = %d, %v, want 0, nil; log of sluice:\n%s", code, err, first.Log())
	}
	if got := denials(10); got != 0 {
		t.Errorf("without sluice %d of 10 requests denied, want 0", got)
	}
	startSluice(t, first.Addr("grpc"))
	suite.Eventually(t, "with sluice restarted a request is denied", func() bool { return denials(1) == 1 })
}

// startSluice starts sluice with the quick start's rules.
func startSluice(t *testing.T, grpcAddr string) *sluice.Sluice {
	t.Helper()
	return suite.StartSluice(t, sluice.Options{
		Binary: programs.sluice,
		Args:   []string{"--config", filepath.Join(root, "examples/quickstart")},
		Addrs:  map[string]string{"grpc": grpcAddr},
	})
}
