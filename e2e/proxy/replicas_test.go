package proxy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestReplicasShareAStore has clients compete for few hits through one Envoy and two replicas with
// one store. Exactly the limit passes, and each admitted request gets a different remaining number.
func TestReplicasShareAStore(t *testing.T) {
	suite.SkipAtYearEnd(t)
	const limit, clients, each = 57, 20, 10
	store := storetest.Start(t)
	for name, words := range map[string]string{
		"fixed window": "unit: year",
		"token bucket": "unit: year, algorithm: token_bucket",
	} {
		t.Run(name, func(t *testing.T) {
			// The prefix separates the counters of the cases. A call that the store did not decide
			// is an error, which Envoy denies here.
			rules := fmt.Sprintf("domain: d\ndescriptors: [{ key: user, rate_limit: { requests_per_unit: %d, %s } }]", limit, words)
			args := []string{
				"--config", suite.WriteRules(t, rules), "--store", "redis://" + store.Addr, "--store-prefix", strings.ReplaceAll(name, " ", "-") + ":",
				"--store-timeout", "60s", "--REDIS_TIMEOUT", "60s", "--store-fallback", "error",
			}
			replicas := []*sluice.Sluice{startSluice(t, sluice.Options{Args: args}), startSluice(t, sluice.Options{Args: args})}
			for _, s := range replicas {
				awaitStore(t, s)
			}
			p := startProxy(t, []listener{{routes: everyUser}}, "", replicas...)
			var mu sync.Mutex
			var passed []int // remaining hits
			var calling sync.WaitGroup
			for range clients {
				calling.Go(func() {
					for range each {
						r, err := p.getFrom(t.Context(), "ingress", "/", "x-user: u")
						mu.Lock()
						switch {
						case err != nil:
							t.Error(err)
						case r.status == http.StatusOK:
							passed = append(passed, r.number("x-ratelimit-remaining"))
						case r.status != http.StatusTooManyRequests:
							t.Errorf("a request got %d, want 200 or 429", r.status)
						}
						mu.Unlock()
					}
				})
			}
			calling.Wait()
			slices.Sort(passed)
			for i, remaining := range passed {
				if remaining != i {
					t.Errorf("the admitted requests had %v remaining, want each number from 0 to %d once", passed, limit-1)
					break
				}
			}
			if len(passed) != limit {
				t.Errorf("%d requests passed, want %d", len(passed), limit)
			}
			for _, s := range replicas {
				if hits := metric(t, s, "ratelimit_service_rate_limit_total_hits"); hits < 2 {
					t.Errorf("a replica decided %v hits, want more than 0 and fewer than all", hits)
				}
				if metric(t, s, "sluice_store_up") != 1 || metric(t, s, "sluice_store_charges_total", `by="store"`) == 0 ||
					metric(t, s, "sluice_store_batch_duration_seconds_count") == 0 || metric(t, s, "sluice_store_divergent_batches_total") != 0 {
					t.Error("according to the metrics, the store is unavailable or did not decide")
				}
			}
		})
	}
}

func awaitStore(t *testing.T, s *sluice.Sluice) {
	t.Helper()
	suite.Eventually(t, "sluice has reached its store", func() bool { return metric(t, s, "sluice_store_up") == 1 })
}
