package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestNoHeaderIsTooLongToLimit holds that a client of Envoy cannot get past its limit
// by a value beyond a bound: Envoy takes the error for a pass, and refuses longer
// headers itself.
func TestNoHeaderIsTooLongToLimit(t *testing.T) {
	t.Parallel()
	p, limits := play(t, setting{
		rules: "domain: d\ndescriptors:\n- key: user\n  rate_limit: { unit: year, requests_per_unit: 1 }\n",
		listener: listener{
			routes:    `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`,
			rateLimit: []string{"failure_mode_deny: false"},
		},
	})
	for _, length := range []int{1 << 10, 17 << 10, 59 << 10} {
		header := "x-user: " + strings.Repeat("u", length)
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := p.get(t, "/", header); got.status != want {
				t.Errorf("request %d of a user of %d bytes: status %d, want %d; sluice said:\n%s", i, length, got.status, want, limits.Log())
			}
		}
	}
	if got := p.get(t, "/", "x-user: "+strings.Repeat("u", 61<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a user of 61 KiB: status %d, want 431 of Envoy", got.status)
	}
	if n := metric(t, limits, "sluice_rejected_requests_total"); n != 0 {
		t.Errorf("%v requests are beyond a bound, want none", n)
	}
}
