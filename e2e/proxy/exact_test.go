package proxy_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// TestLimitIsExact has many clients compete for few hits, through several threads of Envoy and
// sluice.
func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	const (
		clients = 200
		limit   = 57
		rounds  = 3
	)
	one := `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`
	two := `
- match: { prefix: / }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: wide } }]
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
`
	rule := func(words string) string {
		return "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 57, " + words + " } }]"
	}
	for name, tt := range map[string]struct{ rules, routes string }{
		"one limit": {
			rules:  "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 57 } }]",
			routes: one,
		},
		"denied hits are not counted": {
			rules:  "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 57, count_refused: false } }]",
			routes: one,
		},
		"a list": {
			rules:  "domain: d\ndescriptors: [{ key: user, rate_limits: [{ unit: hour, requests_per_unit: 90 }, { unit: day, requests_per_unit: 57 }] }]",
			routes: one,
		},
		"all or nothing": {
			rules: "domain: d\nall_or_nothing: true\ndescriptors:\n" +
				"  - { key: wide, rate_limit: { unit: hour, requests_per_unit: 90 } }\n" +
				"  - { key: user, rate_limit: { unit: hour, requests_per_unit: 57 } }",
			routes: two,
		},
		"sliding window":                {rules: rule("algorithm: sliding_window, sub_windows: 24"), routes: one},
		"sliding log":                   {rules: rule("algorithm: sliding_log"), routes: one},
		"token bucket":                  {rules: rule("algorithm: token_bucket"), routes: one},
		"leaky bucket":                  {rules: rule("algorithm: leaky_bucket, slack: 56"), routes: one},
		"a log that counts denied hits": {rules: rule("algorithm: sliding_log, count_refused: true"), routes: one},
		"a bucket in debt":              {rules: rule("algorithm: token_bucket, count_refused: true"), routes: one},
		"a list of all algorithms": {
			rules: `
domain: d
descriptors:
  - key: user
    rate_limits:
      - { unit: hour, requests_per_unit: 90 }
      - { unit: day, requests_per_unit: 80, algorithm: sliding_window, sub_windows: 24 }
      - { unit: day, requests_per_unit: 70, algorithm: sliding_log }
      - { unit: day, requests_per_unit: 57, algorithm: token_bucket }
      - { unit: day, requests_per_unit: 60, algorithm: leaky_bucket, slack: 58 }
`,
			routes: one,
		},
		"all or nothing with buckets": {
			rules: "domain: d\nall_or_nothing: true\ndescriptors:\n" +
				"  - { key: wide, rate_limit: { unit: day, requests_per_unit: 90, algorithm: token_bucket } }\n" +
				"  - { key: user, rate_limit: { unit: day, requests_per_unit: 57, algorithm: leaky_bucket, slack: 56 } }",
			routes: two,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := startSluice(t, sluice.Options{
				Args: []string{"--config", suite.WriteRules(t, tt.rules)},
				Env:  []string{"GOMAXPROCS=4"},
			})
			p := startProxy(t, []listener{{routes: tt.routes}}, "", limits)
			window.AwaitHour(t)
			for round := range rounds {
				var passed, denied atomic.Int64
				var wg sync.WaitGroup
				start := make(chan struct{})
				for range clients {
					wg.Go(func() {
						<-start
						got, err := p.getFrom(t.Context(), "ingress", "/", fmt.Sprint("x-user: ", round))
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
		})
	}
}
