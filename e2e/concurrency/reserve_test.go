package concurrency_test

import (
	"net/http"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const budget = `
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, requests_per_unit: 1000, unit: day, reserve: { amount: 400 } } }
`

// TestReservations keeps two requests at the backend that reserve 800 of 1000, so that a third is
// denied. A request that ends without a cost stays charged, so that one more passes after one has
// ended, and none after it.
func TestReservations(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	s := startTestbed(t, budget, func(http.ResponseWriter, *http.Request) { <-free })
	statuses := make(chan int, 2)
	for n := range 2 {
		go func() {
			status, err := s.get(t.Context(), "al", "/")
			if err != nil {
				t.Error(err)
			}
			statuses <- status
		}()
		suite.Eventually(t, "a request at the backend", func() bool { now, _ := s.inFlight(); return now == n+1 })
	}
	denied := func() bool {
		status, err := s.get(t.Context(), "al", "/")
		if err != nil {
			t.Error(err)
		}
		return status == http.StatusTooManyRequests
	}
	if !denied() {
		t.Error("a reservation of 400 was admitted with 800 of 1000 reserved")
	}
	close(free)
	for range 2 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("an admitted request got status %d", status)
		}
	}
	for range 3 {
		if !denied() {
			t.Error("a reservation of 400 was admitted with 800 of 1000 charged")
		}
	}
}
