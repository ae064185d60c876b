package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

const a57 = "unit: year, requests_per_unit: 57"

// exactLimits are limits of a user that admit 57 requests in a year.
var exactLimits = map[string]string{
	"one limit":                     "rate_limit: { " + a57 + " }",
	"denied hits are not counted":   "rate_limit: { " + a57 + ", count_refused: false }",
	"a list":                        "rate_limits: [{ unit: week, requests_per_unit: 90 }, { " + a57 + " }]",
	"sliding window":                "rate_limit: { " + a57 + ", algorithm: sliding_window, sub_windows: 24 }",
	"sliding log":                   "rate_limit: { " + a57 + ", algorithm: sliding_log }",
	"token bucket":                  "rate_limit: { " + a57 + ", algorithm: token_bucket }",
	"leaky bucket":                  "rate_limit: { " + a57 + ", algorithm: leaky_bucket, slack: 56 }",
	"a log that counts denied hits": "rate_limit: { " + a57 + ", algorithm: sliding_log, count_refused: true }",
	"a bucket in debt":              "rate_limit: { " + a57 + ", algorithm: token_bucket, count_refused: true }",
	"a list of all algorithms": `
    rate_limits:
      - { unit: year, unit_multiplier: 2, requests_per_unit: 90 }
      - { unit: year, requests_per_unit: 80, algorithm: sliding_window, sub_windows: 24 }
      - { unit: year, requests_per_unit: 70, algorithm: sliding_log }
      - { unit: year, requests_per_unit: 57, algorithm: token_bucket }
      - { unit: year, requests_per_unit: 60, algorithm: leaky_bucket, slack: 58 }`,
}

// startExact selects the limit by the header x-limit.
var startExact = share("exact", exactRules(), listener{routes: `
- match: { prefix: / }
  route:
    rate_limits:
      - actions:
          - ` + byHeader("x-limit", "limit") + `
          - ` + byHeader("x-user", "user") + `
`})

func exactRules() string {
	var rules strings.Builder
	rules.WriteString("descriptors:\n")
	for name, limit := range exactLimits {
		fmt.Fprintf(&rules, "- key: limit\n  value: %s\n  descriptors:\n  - key: user\n    %s\n", name, limit)
	}
	return rules.String()
}

// startExactTogether has limits that are charged together or not at all.
var startExactTogether = share("together", `
all_or_nothing: true
descriptors:
  - { key: wide, rate_limit: { unit: year, requests_per_unit: 90 } }
  - { key: user, rate_limit: { unit: year, requests_per_unit: 57 } }
  - { key: wide bucket, rate_limit: { unit: year, requests_per_unit: 90, algorithm: token_bucket } }
  - { key: bucket, rate_limit: { unit: year, requests_per_unit: 57, algorithm: leaky_bucket, slack: 56 } }
`, listener{routes: `
- match: { path: /windows }
  route:
    rate_limits:
      - actions: [` + byHeader("x-user", "wide") + `]
      - actions: [` + byHeader("x-user", "user") + `]
- match: { path: /buckets }
  route:
    rate_limits:
      - actions: [` + byHeader("x-user", "wide bucket") + `]
      - actions: [` + byHeader("x-user", "bucket") + `]
`})

// TestLimitIsExact has many clients compete for few hits, through several threads of Envoy and
// sluice.
func TestLimitIsExact(t *testing.T) {
	p, _ := startExact(t)
	for name := range exactLimits {
		t.Run(name, func(t *testing.T) {
			p.competeFor57(t, "/", "x-limit: "+name)
		})
	}
	p, _ = startExactTogether(t)
	for _, path := range []string{"/windows", "/buckets"} {
		t.Run("all or nothing with "+path[1:], func(t *testing.T) {
			p.competeFor57(t, path, "x-limit: none")
		})
	}
}

// competeFor57 sends requests of a user from many clients, of which 57 must be admitted.
func (p *proxy) competeFor57(t *testing.T, path, header string) {
	t.Helper()
	const (
		clients = 200
		limit   = 57
	)
	for round := range effort.Times(t, 1) {
		var passed, denied atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range clients {
			wg.Go(func() {
				<-start
				got, err := p.getFrom(t.Context(), p.ingress, path, header, fmt.Sprint("x-user: ", round))
				switch {
				case err != nil:
					t.Error(err)
				case got.status == http.StatusOK:
					passed.Add(1)
				case got.status == http.StatusTooManyRequests:
					denied.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if passed.Load() != limit || denied.Load() != clients-limit {
			t.Errorf("round %d: %d requests were admitted and %d denied, want %d and %d",
				round+1, passed.Load(), denied.Load(), limit, clients-limit)
		}
	}
}
