//go:build more

package proxy_test

import (
	"net/http"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestLimitOnOutcomes checks the limit on the request and charges at the end of the stream, as a
// limit on failed logins does. With counters in memory and in a store, a client that fails 400
// times gets exactly the limit and the one request that exceeds it.
func TestLimitOnOutcomes(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	for name, args := range map[string][]string{
		"memory":            nil,
		"store":             {"--store", "redis://" + store.Addr, "--store-timeout", "60s", "--REDIS_TIMEOUT", "60s", "--store-fallback", "error"},
		"ratelimit's names": {"--store", "redis://" + store.Addr, "--store-timeout", "60s", "--REDIS_TIMEOUT", "60s", "--store-fallback", "error", "--store-names", "ratelimit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := suite.WriteRules(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 5 } }]")
			limits := startSluice(t, sluice.Options{Args: append(args, "--config", rules)})
			if args != nil {
				awaitStore(t, limits)
			}
			p := startProxy(t, []listener{{routes: `
- match: { prefix: / }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      ` + perRoute + `
      rate_limits:
        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
          hits_addend: { number: 0 }
        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
          hits_addend: { number: 1 }
          apply_on_stream_done: true
`}}, "", limits)
			before := metric(t, limits, "ratelimit_service_rate_limit_total_hits", `key1="user"`)
			passed := 0
			for n := range 400 {
				switch got := p.get(t, "/", "x-user: guesser"); got.status {
				case http.StatusOK:
					passed++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("a request got %d, want 200 or 429", got.status)
				}
				awaitHits(t, limits, "d", "user", before+float64(n+1))
			}
			if passed != 6 {
				t.Errorf("%d of 400 requests passed, want 6", passed)
			}
		})
	}
}
