package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// clearRouteCache is a filter that makes Envoy select the route again.
const clearRouteCache = `
- name: envoy.filters.http.set_filter_state
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config
    clear_route_cache: true
`

const softRoutes = `
- match: { prefix: /, dynamic_metadata: [{ filter: envoy.filters.http.ratelimit, path: [{ key: soft }], value: { string_match: { exact: "gr????e?: 1" } } }] }
  request_headers_to_add: [{ header: { key: x-route, value: cheap } }]
  route: { rate_limits: ` + byUser + ` }
- match: { prefix: / }
  request_headers_to_add: [{ header: { key: x-route, value: usual } }]
  route: { rate_limits: ` + byUser + ` }
`

var startSoft = share("soft", `
descriptors:
  - { key: user, value: heavy, rate_limit: { unit: year, requests_per_unit: 0, name: " größe\u007f: 1 ", soft: true } }
  - { key: user, value: denied, rate_limits: [{ unit: year, requests_per_unit: 0 }, { unit: year, requests_per_unit: 0, name: low, soft: true }] }
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1000000, name: " größe\u007f: 1 ", soft: true } }
`, listener{
	after: clearRouteCache, routes: softRoutes,
	manager: `
early_header_mutation_extensions:
  - name: strip
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
      mutations: [{ remove: x-ratelimit-soft }]
`,
})

// TestSoftLimitSelectsTheRoute has Envoy route requests above a soft limit elsewhere, by the
// metadata. Clients that send the header, under any spelling, or headers that look like metadata
// do not reach that route, and with early stripping their header does not reach the backend.
func TestSoftLimitSelectsTheRoute(t *testing.T) {
	p, _ := startSoft(t)
	const name = "gr????e?: 1"
	for protocol, client := range map[string]*http.Client{"HTTP/1.1": p.client, "HTTP/2": p.http2} {
		for _, forged := range []http.Header{
			{},
			{"X-Ratelimit-Soft": {name}},
			{"X-Ratelimit-Soft": {"", name, "low"}, "X-Route": {"cheap"}},
			{"x-ratelimit-soft": {name}, "Soft": {name}, "Envoy.Filters.Http.Ratelimit": {"soft=" + name}},
			{"X-Ratelimit_soft": {name}, "X-Envoy-Dynamic-Metadata": {"envoy.filters.http.ratelimit.soft=" + name}, "X-Envoy-Ratelimited": {"true"}},
		} {
			for user, want := range map[string]string{"heavy": name, "light": "", "denied": "low"} {
				status, response, forwarded := p.forge(t.Context(), t, client, user, forged)
				if got := strings.Join(response.Values("X-Ratelimit-Soft"), ", "); got != want {
					t.Errorf("%s, %s with %q: the response has %q, want %q", protocol, user, forged, got, want)
				}
				if user == "denied" {
					if status != http.StatusTooManyRequests {
						t.Errorf("%s, %s with %q: status %d, want 429", protocol, user, forged, status)
					}
					continue
				}
				route := "usual"
				if user == "heavy" {
					route = "cheap"
				}
				routes := forwarded.Values("X-Route")
				if len(routes) == 0 || routes[len(routes)-1] != route {
					t.Errorf("%s, %s with %q took the routes %q, want %s", protocol, user, forged, routes, route)
				}
				if got := strings.Join(forwarded.Values("X-Ratelimit-Soft"), ", "); got != want {
					t.Errorf("%s, %s with %q: the backend received %q, want %q", protocol, user, forged, got, want)
				}
			}
		}
	}
}

// forge sends a request with more headers, and returns the response's status and headers and, if it
// passed, the headers that the backend received.
func (p *proxy) forge(ctx context.Context, t *testing.T, client *http.Client, user string, more http.Header) (status int, response, forwarded http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr(p.ingress)+"/", http.NoBody)
	must.OK(t, err)
	req.Header = more.Clone()
	req.Header.Set("X-User", user)
	resp, err := client.Do(req)
	must.OK(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.OK(t, err)
	var got struct{ Header http.Header }
	if resp.StatusCode == http.StatusOK {
		must.OK(t, json.Unmarshal(body, &got))
	}
	return resp.StatusCode, resp.Header, got.Header
}
