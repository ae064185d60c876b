package proxy_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// TestExactlyTheLimitPasses has many clients race for few places, which Envoy's
// threads and sluice's hand out at once.
func TestExactlyTheLimitPasses(t *testing.T) {
	t.Parallel()
	const (
		clients = 200
		places  = 57
		rounds  = 5
	)
	one := `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`
	two := `
- match: { prefix: / }
  route:
    rate_limits:
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: wide } }]
      - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
`
	for name, tt := range map[string]struct{ rules, routes string }{
		"one limit": {
			rules:  "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 57 } }]",
			routes: one,
		},
		"refused is free": {
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := startSluice(t, sluice.Options{
				Args: []string{"--config", writeRules(t, tt.rules)},
				Env:  []string{"GOMAXPROCS=4"},
			})
			p := startProxy(t, []listener{{routes: tt.routes}}, "", limits)
			window.AwaitHour(t)
			for round := range rounds {
				var passed, refused atomic.Int64
				var wg sync.WaitGroup
				start := make(chan struct{})
				for range clients {
					wg.Go(func() {
						<-start
						got, err := p.ask(t.Context(), "ingress", "/", fmt.Sprint("x-user: ", round))
						switch {
						case err != nil:
							t.Error(err)
						case got.status == http.StatusOK:
							passed.Add(1)
						case got.status == http.StatusTooManyRequests:
							refused.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				if passed.Load() != places || refused.Load() != clients-places {
					t.Errorf("round %d: %d passed and %d were refused, want %d and %d",
						round+1, passed.Load(), refused.Load(), places, clients-places)
				}
			}
		})
	}
}
