package concurrency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const twoAtOnce = `
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 2, unit: minute } }
`

// TestPermitsAreReleased keeps two requests at the backend, so that a third is denied, and finishes
// one, so that another passes.
func TestPermitsAreReleased(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	s := startTestbed(t, twoAtOnce, func(_ http.ResponseWriter, _ *http.Request) { <-free })
	statuses := make(chan int, 2)
	send := func() {
		go func() {
			status := http.StatusTooManyRequests
			for status == http.StatusTooManyRequests { // the permit is released shortly after the end of the stream
				var err error
				if status, err = s.get(context.Background(), "al", "/"); err != nil {
					t.Error(err)
				}
			}
			statuses <- status
		}()
	}
	denied := func() bool {
		status, err := s.get(t.Context(), "al", "/")
		if err != nil {
			t.Error(err)
		}
		return status == http.StatusTooManyRequests
	}
	for n := range 2 {
		send()
		suite.Eventually(t, "a request at the backend", func() bool { now, _ := s.inFlight(); return now == n+1 })
	}
	for range 10 {
		if !denied() {
			t.Fatal("a third concurrent request was admitted")
		}
	}
	for range 50 {
		free <- struct{}{}
		if status := <-statuses; status != http.StatusOK {
			t.Fatalf("an admitted request got status %d", status)
		}
		send()
		suite.Eventually(t, "the next request at the backend", func() bool { now, _ := s.inFlight(); return now == 2 })
		if !denied() {
			t.Fatal("a third concurrent request was admitted")
		}
	}
	close(free)
	<-statuses
	<-statuses
}
