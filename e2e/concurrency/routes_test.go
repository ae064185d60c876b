package concurrency_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestRoutesThatChangeDescriptors covers routes that change the headers of an entry. Envoy makes
// the descriptors for the end of a stream from the changed headers, so permits are not released:
// with two permits, the third of three sequential requests is denied. `sluice envoy check` reports
// exactly these routes.
func TestRoutesThatChangeDescriptors(t *testing.T) {
	t.Parallel()
	const entry, route, match = "request_headers: { header_name: x-user, descriptor_key: user }", "route: { cluster: backend }", "match: { prefix: / }"
	for name, tt := range map[string]struct {
		entry, route string
		lost         bool
	}{
		"nothing":       {entry, route, false},
		"appended":      {entry, route + "\n                          request_headers_to_add: [{ header: { key: x-user, value: other } }]", false},
		"removed":       {entry, route + "\n                          request_headers_to_remove: [x-user]", true},
		"overwritten":   {entry, route + "\n                          request_headers_to_add: [{ header: { key: x-user, value: other }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }]", true},
		"another path":  {strings.Replace(entry, "x-user", `":path"`, 1), "route: { cluster: backend, prefix_rewrite: /b }", true},
		"another host":  {strings.Replace(entry, "x-user", `":authority"`, 1), "route: { cluster: backend, host_rewrite_literal: other }", true},
		"the same host": {strings.Replace(entry, "x-user", `":authority"`, 1), route, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := os.ReadFile("testdata/envoy.yaml")
			must.OK(t, err)
			text := strings.NewReplacer(entry, tt.entry, route, tt.route, match, "match: { prefix: /a }").Replace(string(config))
			s, dir := startWithBootstrap(t, twoAtOnce, []byte(text))
			last := 0
			suite.Eventually(t, "a third status", func() bool {
				for n := range 3 {
					if last, err = s.get(t.Context(), "al", "/a"); err != nil || n < 2 && tt.lost && last != http.StatusOK {
						t.Fatalf("request %d has the status %d: %v", n+1, last, err)
					}
				}
				return tt.lost || last == http.StatusOK // the permit is released shortly after the end
			})
			if tt.lost && last != http.StatusTooManyRequests {
				t.Errorf("the third request got status %d: are permits released?", last)
			}
			found, _ := exec.CommandContext(t.Context(), sluiceBinary, "envoy", "check", filepath.Join(dir, "checked.yaml"), "-c", filepath.Join(dir, "rules.yaml")).Output()
			if got := strings.Contains(string(found), "error: changed: the route changes"); got != tt.lost {
				t.Errorf("envoy check reports a change: %v, want %v:\n%s", got, tt.lost, found)
			}
		})
	}
}

// startWithBootstrap is startTestbed with another bootstrap. It returns the directory of the rules
// and the bootstrap.
func startWithBootstrap(t *testing.T, rules string, config []byte) (s *testbed, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	suite.Replace(t, path, rules)
	suite.Replace(t, filepath.Join(dir, "checked.yaml"), string(config))
	limits := suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: []string{"--config", path}})
	s = &testbed{backend: startBackend(t, func(http.ResponseWriter, *http.Request) {}), sluice: limits, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.envoy = suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: config, Dir: dir, Clusters: map[string][]string{"sluice": {limits.Addr("grpc")}, "backend": {s.addr}},
	})
	return s, dir
}
