package examples_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestShadowAlongsideOldService runs step 2 of the plan in docs/migrating.md: its filter precedes
// the existing filter of envoy.yaml, whose service represents the old one. Envoy sends the same
// requests to both, and the one in shadow mode counts the requests that it would have denied.
func TestShadowAlongsideOldService(t *testing.T) {
	t.Parallel()
	suite.Envoy(t, root)
	page, err := os.ReadFile(filepath.Join(root, "docs", "migrating.md"))
	must.OK(t, err)
	_, block, _ := strings.Cut(string(page), "```yaml\nhttp_filters:")
	block, _, found := strings.Cut(block, "```")
	var shown struct {
		Filters list `yaml:"http_filters"`
	}
	if err := yaml.Unmarshal([]byte("http_filters:"+block), &shown); err != nil || !found || len(shown.Filters) != 1 {
		t.Fatalf("docs/migrating.md shows the filters %v, %v, want one", shown.Filters, err)
	}
	config := example(t, "..", "envoy.yaml")
	eachObject(config, func(o object) {
		if filters := field[list](o, "http_filters"); len(filters) == 2 {
			o["http_filters"] = append(list{shown.Filters[0]}, filters...)
		}
	})
	static := field[object](config, "static_resources")
	for _, c := range field[list](static, "clusters") {
		if c, _ := c.(object); c["name"] == "sluice" {
			shadow := maps.Clone(c)
			shadow["name"] = "sluice-shadow"
			shadow["load_assignment"] = object{"cluster_name": "sluice-shadow", "endpoints": list{object{"lb_endpoints": list{object{
				"endpoint": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 18081}}},
			}}}}}
			static["clusters"] = append(field[list](static, "clusters"), shadow)
		}
	}
	rules := []string{"--config", "examples/quickstart"}
	old := startSluice(t, sluice.Options{Args: rules})
	shadow := startSluice(t, sluice.Options{Args: append(rules, "--shadow-mode")})
	e := startEnvoy(t, config, map[string]string{
		"127.0.0.1:8081": old.Addr("grpc"), "127.0.0.1:18081": shadow.Addr("grpc"),
	})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	window.AwaitHour(t)
	for i := range 7 {
		want := http.StatusOK
		if i >= 5 { // limit per hour
			want = http.StatusTooManyRequests
		}
		if got, _ := get(ctx, t, "http://"+e.Addr("ingress")+"/"); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	for name, s := range map[string]*sluice.Sluice{"old": old, "shadow": shadow} {
		_, metrics := get(ctx, t, "http://"+s.Addr("metrics")+"/metrics")
		for _, want := range []string{
			`ratelimit_service_rate_limit_total_hits{domain="quickstart",key1="user",key2="",limit="",rule="user"} 7`,
			`ratelimit_service_rate_limit_over_limit{domain="quickstart",key1="user",key2="",limit="",rule="user"} 2`,
		} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("/metrics of the %s service lacks %s", name, want)
			}
		}
	}
}

// get sends a request of a user.
func get(ctx context.Context, t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must.OK(t, err)
	req.Header.Set("X-User", "alice")
	resp, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.OK(t, err)
	return resp.StatusCode, string(text)
}
