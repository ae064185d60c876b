package proxy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/e2e/window"
)

const byUser = `[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]`

// limitUsers starts sluice and an Envoy that sends it each user. The hour, and with it every longer
// window, lasts long enough for a test.
func limitUsers(t *testing.T, rules string, args ...string) *proxy {
	t.Helper()
	p, _ := startSetup(t, setup{
		rules: rules, args: args,
		listener: listener{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
	})
	window.AwaitHour(t)
	return p
}

// TestRateLimitHeaders checks the headers of both programs: Envoy's, which it derives from the
// statuses, and those in sluice's reply.
func TestRateLimitHeaders(t *testing.T) {
	t.Parallel()
	p := limitUsers(t, `
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
`, "--response-headers", "--retry-after-header")

	for i, want := range []struct {
		status    int
		remaining string
	}{{http.StatusOK, "1"}, {http.StatusOK, "0"}, {http.StatusTooManyRequests, "0"}} {
		got := p.get(t, "/", "x-user: al")
		if got.status != want.status {
			t.Errorf("request %d: status %d, want %d", i+1, got.status, want.status)
		}
		for name, value := range map[string]string{
			"X-Ratelimit-Limit":     `2, 2;w=3600;name="per-user"`,
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
		if reset < 1 || reset > 3600 {
			t.Errorf("request %d: reset in %d seconds, want 1 to 3600", i+1, reset)
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

// TestHeadersToUpstream has Envoy add headers to the forwarded request. Headers of the same names
// from the client are kept before them, as with envoyproxy/ratelimit.
func TestHeadersToUpstream(t *testing.T) {
	t.Parallel()
	p := limitUsers(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }]", "--request-headers", "--request-remaining-header", "X-Left")
	for _, header := range []string{"x-user: al", "x-user: al", "x-user: al", "x-other: none"} {
		if got := p.get(t, "/", header, "x-left: 999"); got.get("X-Left") != "" {
			t.Errorf("%s: the client got %v", header, got)
		}
	}
	var left [][]string
	for _, r := range p.backend.Requests() {
		left = append(left, r.Header["X-Left"])
		if limit := r.Header.Get("Ratelimit-Limit"); r.Header.Get("X-User") != "" && limit != "2" {
			t.Errorf("the upstream service got a limit of %q, want 2", limit)
		}
	}
	if diff := cmp.Diff([][]string{{"999", "1"}, {"999", "0"}, {"999"}}, left); diff != "" {
		t.Errorf("remaining limit at the upstream service (-want +got):\n%s", diff)
	}
}

// TestEveryDescriptorCounts sends two descriptors per request. The stricter limit denies, and
// all_or_nothing decides whether the other one is charged.
func TestEveryDescriptorCounts(t *testing.T) {
	t.Parallel()
	const descriptors = `
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: hour, requests_per_unit: 5 } }
  - { key: route, rate_limit: { name: per-route, unit: day, requests_per_unit: 3 } }
  - key: listed
    rate_limits:
      - { name: burst, unit: hour, requests_per_unit: 1 }
      - { name: steady, unit: day, requests_per_unit: 2 }
`
	const routes = `
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
	for name, tt := range map[string]struct {
		root string
		// remaining is the user's remaining limit after 3 allowed requests, 1 denied and 1 more.
		remaining string
	}{
		"denied counts":               {root: "domain: d", remaining: "0"},
		"denied hits are not counted": {root: "domain: d\nall_or_nothing: true", remaining: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := startSetup(t, setup{
				rules:    tt.root + descriptors,
				listener: listener{routes: routes},
			})
			window.AwaitHour(t)
			const limits = `3, 5;w=3600;name="per-user", 3;w=86400;name="per-route"`
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
			}{{200, `1, 1;w=3600;name="burst"`}, {429, `1, 1;w=3600;name="burst"`}} {
				got := p.get(t, "/listed")
				if got.status != want.status || got.get("X-Ratelimit-Limit") != want.limit {
					t.Errorf("list, request %d: %d %s, want %v", i+1, got.status, got.get("X-Ratelimit-Limit"), want)
				}
			}
		})
	}
}

// TestStructuredHeaders checks the headers of the IETF draft, also with names that must be escaped.
// They must not add a header of their own.
func TestStructuredHeaders(t *testing.T) {
	t.Parallel()
	p := limitUsers(t, `
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: per-user, unit: year, requests_per_unit: 2 }
      - { name: "burst \"of\\é", unit: hour, requests_per_unit: 3600, algorithm: token_bucket, burst: 5 }
`, "--ratelimit-headers=structured", "--retry-after-header")
	const policy = `"per-user";q=2;w=31536000, "burst \"of\\??";q=5;w=5`
	for i, want := range []string{
		`^"per-user";r=1;t=(\d+), "burst \\"of\\\\\?\?";r=4;t=1$`,
		`^"per-user";r=0;t=(\d+), "burst \\"of\\\\\?\?";r=[34];t=1$`,
		`^"per-user";r=0;t=(\d+), "burst \\"of\\\\\?\?";r=[345];t=1$`,
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

// TestStructuredHeadersParse has a parser of structured fields read the headers of each algorithm,
// with names that need escapes, behind a real Envoy. Retry-After is not before the end of the time
// of a limit that denied.
func TestStructuredHeadersParse(t *testing.T) {
	t.Parallel()
	p := limitUsers(t, `
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: 'back\slash "quote"', unit: year, requests_per_unit: 4294967295 }
      - { name: "é\u2028\t;q=1, x", unit: hour, requests_per_unit: 9, algorithm: sliding_window }
      - { name: " ", unit: minute, requests_per_unit: 9, algorithm: sliding_log }
      - { name: "a;b=c", unit: hour, requests_per_unit: 1, algorithm: token_bucket }
      - { name: "?1", unit: hour, requests_per_unit: 60, algorithm: leaky_bucket, slack: 4 }
      - { name: permits, unit: hour, requests_per_unit: 8, algorithm: concurrency }
`, "--ratelimit-headers=structured", "--retry-after-header")
	for i, status := range []int{200, 429} {
		got := p.get(t, "/", "x-user: al")
		var fields [2][][2]any // lists of a name and its parameters
		runSDK(t, &fields, "structured.py", got.get("RateLimit-Policy"), got.get("RateLimit"))
		var names [2][]any
		for j, list := range fields {
			for _, item := range list {
				names[j] = append(names[j], item[0])
			}
		}
		want := []any{`back\slash "quote"`, "??????;q=1, x", " ", "a;b=c", "?1", "permits"}
		if diff := cmp.Diff([2][]any{want, want}, names); diff != "" || got.status != status {
			t.Errorf("request %d: status %d, want %d; names (-want +got):\n%s", i+1, got.status, status, diff)
			continue
		}
		denied := fields[1][3][1].(map[string]any)
		if r, after := denied["r"].(float64), got.number("Retry-After"); r != 0 || i > 0 && float64(after) < denied["t"].(float64) {
			t.Errorf("request %d: %v, Retry-After %d, want none left and a later retry", i+1, denied, after)
		}
	}
}

// TestHiddenLimits checks that Envoy sends its headers about a quota, but none about a hidden limit
// that denies, except the time to wait.
func TestHiddenLimits(t *testing.T) {
	t.Parallel()
	p := limitUsers(t, `
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: quota, unit: year, requests_per_unit: 9 }
      - { name: flood, unit: hour, requests_per_unit: 1, hidden: true }
`, "--response-headers", "--ratelimit-headers=structured", "--denied-response=openai")
	passed, denied := p.get(t, "/", "x-user: al"), p.get(t, "/", "x-user: al")
	if passed.status != http.StatusOK || passed.number("X-Ratelimit-Remaining") != 8 || passed.number("Ratelimit-Remaining") != 8 {
		t.Errorf("the first reply is %v, want the headers of the quota", passed)
	}
	if denied.status != http.StatusTooManyRequests || denied.number("Retry-After") < 1 || denied.number("Retry-After-Ms") < 1 ||
		denied.get("X-Ratelimit-Limit") != "" || denied.get("Ratelimit-Limit") != "" || denied.number("Content-Length") != 0 {
		t.Errorf("the second reply is %v, want a denial without headers about the limit and without a body", denied)
	}
	for _, got := range []reply{passed, denied} {
		if strings.Contains(fmt.Sprint(got.header), "flood") {
			t.Errorf("the reply describes the hidden limit: %v", got)
		}
	}
}
