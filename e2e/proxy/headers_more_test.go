//go:build more

package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/e2e/window"
)

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
`, "--LIMIT_RESPONSE_HEADERS_ENABLED", "--ratelimit-headers=structured", "--denied-response=openai")
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
