package proxy_test

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// everyUser is a route that sends each user.
const everyUser = `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`

var startHeaders = share("headers", `
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: year, requests_per_unit: 2 } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
`, listener{routes: everyUser})

// TestRateLimitHeaders checks the headers of both programs: Envoy's, which it derives from the
// statuses, and those in sluice's reply.
func TestRateLimitHeaders(t *testing.T) {
	p, _ := startHeaders(t)
	for i, want := range []struct {
		status    int
		remaining string
	}{{http.StatusOK, "1"}, {http.StatusOK, "0"}, {http.StatusTooManyRequests, "0"}} {
		got := p.get(t, "/", "x-user: al")
		if got.status != want.status {
			t.Errorf("request %d: status %d, want %d", i+1, got.status, want.status)
		}
		for name, value := range map[string]string{
			"X-Ratelimit-Limit":     `2, 2;w=31536000;name="per-user"`,
			"X-Ratelimit-Remaining": want.remaining,
			"Ratelimit-Limit":       "2",
			"Ratelimit-Remaining":   want.remaining,
			"Ratelimit-Reset":       got.get("X-Ratelimit-Reset"),
		} {
			if got.get(name) != value {
				t.Errorf("request %d: %s: %s, want %s", i+1, name, got.get(name), value)
			}
		}
		reset := got.number("X-Ratelimit-Reset")
		if reset < 1 || reset > 31536000 {
			t.Errorf("request %d: reset in %d seconds, want 1 to 31536000", i+1, reset)
		}
		retry := got.header["Retry-After"]
		switch {
		case want.status == http.StatusOK && retry != nil:
			t.Errorf("request %d: retry-after: %s on an OK", i+1, retry)
		case want.status != http.StatusOK && (len(retry) != 1 || retry[0] != got.get("X-Ratelimit-Reset")):
			t.Errorf("request %d: retry-after: %q, want one value, %d", i+1, retry, reset)
		}
	}

	if got := p.get(t, "/", "x-user: bo"); got.status != http.StatusOK || got.number("X-Ratelimit-Remaining") != 1 {
		t.Errorf("another user: %v, want 200 and 1 remaining", got)
	}
	for _, header := range []string{"x-user: root", "x-other: none"} {
		got := p.get(t, "/", header)
		if got.status != http.StatusOK || got.get("X-Ratelimit-Limit") != "" || got.get("Ratelimit-Limit") != "" {
			t.Errorf("%s: %v, want 200 and no limit", header, got)
		}
	}

	got := p.get(t, "/", "x-user: al", "content-type: application/grpc")
	if got.status != http.StatusOK || got.get("Grpc-Status") != "8" {
		t.Errorf("gRPC: %v, want 200 with grpc-status: 8 (resource exhausted)", got)
	}
}

var startUpstream = share("upstream", `
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]
`, listener{routes: everyUser})

// TestHeadersToUpstream has Envoy add headers to the forwarded request. Headers of the same names
// from the client are kept before them, as with envoyproxy/ratelimit.
func TestHeadersToUpstream(t *testing.T) {
	p, _ := startUpstream(t)
	before := len(p.backend.Requests())
	for _, header := range []string{"x-user: al", "x-user: al", "x-user: al", "x-other: none"} {
		if got := p.get(t, "/", header, "x-left: 999"); got.get("X-Left") != "" {
			t.Errorf("%s: the client got %v", header, got)
		}
	}
	var left [][]string
	for _, r := range p.backend.Requests()[before:] {
		left = append(left, r.Header["X-Left"])
		if limit := r.Header.Get("Ratelimit-Limit"); r.Header.Get("X-User") != "" && limit != "2" {
			t.Errorf("the upstream service got a limit of %q, want 2", limit)
		}
	}
	if diff := cmp.Diff([][]string{{"999", "1"}, {"999", "0"}, {"999"}}, left); diff != "" {
		t.Errorf("remaining limit at the upstream service (-want +got):\n%s", diff)
	}
}

const countedLimits = `
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: year, unit_multiplier: 2, requests_per_unit: 5 } }
  - { key: route, rate_limit: { name: per-route, unit: year, requests_per_unit: 3 } }
  - key: listed
    rate_limits:
      - { name: burst, unit: year, requests_per_unit: 1 }
      - { name: steady, unit: year, unit_multiplier: 2, requests_per_unit: 2 }
`

const countedRoutes = `
- match: { path: /both }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
      - actions: [{ generic_key: { descriptor_key: route, descriptor_value: both } }]
- match: { path: /user }
  route: { rate_limits: ` + byUser + ` }
- match: { path: /listed }
  route: { rate_limits: [{ actions: [{ remote_address: {} }, { generic_key: { descriptor_key: listed, descriptor_value: x } }] },
                         { actions: [{ generic_key: { descriptor_key: listed, descriptor_value: x } }] }] }
`

var (
	startCounted         = share("counted", countedLimits, listener{routes: countedRoutes})
	startCountedTogether = share("counted-together", "all_or_nothing: true"+countedLimits, listener{routes: countedRoutes})
)

// TestEveryDescriptorCounts sends two descriptors per request. The stricter limit denies, and
// all_or_nothing decides whether the other one is charged.
func TestEveryDescriptorCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		start func(t *testing.T) (*proxy, *sluice.Sluice)
		// remaining is the user's remaining limit after 3 allowed requests, 1 denied and 1 more.
		remaining string
	}{
		"denied counts":               {start: startCounted, remaining: "0"},
		"denied hits are not counted": {start: startCountedTogether, remaining: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := tt.start(t)
			const limits = `3, 5;w=63072000;name="per-user", 3;w=31536000;name="per-route"`
			for i, status := range []int{200, 200, 200, 429} {
				got := p.get(t, "/both", "x-user: al")
				if got.status != status || got.get("X-Ratelimit-Limit") != limits {
					t.Errorf("request %d: %d %s, want %d %s", i+1, got.status, got.get("X-Ratelimit-Limit"), status, limits)
				}
				if want := max(0, 2-i); got.number("X-Ratelimit-Remaining") != want {
					t.Errorf("request %d: %s remaining, want %d", i+1, got.get("X-Ratelimit-Remaining"), want)
				}
			}
			got := p.get(t, "/user", "x-user: al")
			if got.status != http.StatusOK || got.get("X-Ratelimit-Remaining") != tt.remaining {
				t.Errorf("after the limit was reached: %v, want 200 and %s remaining", got, tt.remaining)
			}
			// Several limits on a descriptor share one status; a descriptor without a matching rule
			// adds none.
			for i, want := range []struct {
				status int
				limit  string
			}{{200, `1, 1;w=31536000;name="burst"`}, {429, `1, 1;w=31536000;name="burst"`}} {
				got := p.get(t, "/listed")
				if got.status != want.status || got.get("X-Ratelimit-Limit") != want.limit {
					t.Errorf("list, request %d: %d %s, want %v", i+1, got.status, got.get("X-Ratelimit-Limit"), want)
				}
			}
		})
	}
}

var startStructured = share("structured", `
descriptors:
  - key: user
    rate_limits:
      - { name: per-user, unit: year, requests_per_unit: 2 }
      - { name: "burst \"of\\é", unit: year, requests_per_unit: 5, algorithm: token_bucket, burst: 5 }
`, listener{routes: everyUser})

// TestStructuredHeaders checks the headers of the IETF draft, also with names that must be escaped.
// They must not add a header of their own.
func TestStructuredHeaders(t *testing.T) {
	p, _ := startStructured(t)
	const policy = `"per-user";q=2;w=31536000, "burst \"of\\??";q=5;w=31536000`
	for i, want := range []string{
		`^"per-user";r=1;t=(\d+), "burst \\"of\\\\\?\?";r=4;t=\d+$`,
		`^"per-user";r=0;t=(\d+), "burst \\"of\\\\\?\?";r=3;t=\d+$`,
		`^"per-user";r=0;t=(\d+), "burst \\"of\\\\\?\?";r=3;t=\d+$`,
	} {
		got := p.get(t, "/", "x-user: al")
		found := regexp.MustCompile(want).FindStringSubmatch(got.get("RateLimit"))
		if got.get("RateLimit-Policy") != policy || found == nil || (got.status == http.StatusOK) != (i < 2) {
			t.Fatalf("reply %d: %v, want RateLimit-Policy %q and RateLimit %q", i, got, policy, want)
		}
		if reset, _ := strconv.Atoi(found[1]); i == 2 && got.number("Retry-After") < reset {
			t.Errorf("Retry-After is %d, before the end of t, %d", got.number("Retry-After"), reset)
		}
	}
}
