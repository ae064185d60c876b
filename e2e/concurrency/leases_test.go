package concurrency_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestOnlyTheHolderReleases checks that a lease that is expired, of another counter, or unknown
// releases no permit. Here the client chooses the lease to release, which no real configuration
// should allow.
func TestOnlyTheHolderReleases(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, releaseRules, nil)
	forge := func(lease string) {
		t.Helper()
		calls := func() float64 {
			return s.metric(t, "ratelimit_service_total_requests", `grpc_method="ShouldRateLimit"`)
		}
		before := calls()
		if got, err := s.get(t.Context(), "al", "/forged", "X-Forged", lease); got != http.StatusOK {
			t.Fatalf("status %d (%v), want 200", got, err)
		}
		suite.Eventually(t, "both filters have called twice", func() bool { return calls() == before+4 })
	}
	past := s.startStreams(t, "al", 1)
	past.finishOne(t)
	s.awaitFreePermits(t, "al", 4)
	other, mine := s.startStreams(t, "bo", 1), s.startStreams(t, "al", 2)
	if mine.leases[0] == mine.leases[1] || mine.leases[0] == past.leases[0] {
		t.Fatalf("the leases %q and the earlier ones %q are not distinct", mine.leases, past.leases)
	}
	number, err := strconv.Atoi(mine.leases[1])
	if err != nil || number < limiter.FirstLease || number > limiter.LastLease {
		t.Fatalf("the lease is %q (%v), want a number from %d to %d", mine.leases[1], err, limiter.FirstLease, limiter.LastLease)
	}
	for _, lease := range []string{past.leases[0], other.leases[0], strconv.Itoa(number + 1), strconv.Itoa(limiter.LastLease), strconv.Itoa(limiter.LastLease + 1), "1", "2"} {
		forge(lease)
		if got := s.freePermits(t, "al"); got != 2 {
			t.Errorf("after releasing %s, %d permits are free, want 2", lease, got)
		}
	}
	// The holder's lease, twice.
	forge(mine.leases[1])
	forge(mine.leases[1])
	s.awaitFreePermits(t, "al", 3)
	for range 2 { // one releases a lease whose permit is already free
		if got := mine.finishOne(t); got != http.StatusOK {
			t.Errorf("a waiting request got %d, want 200", got)
		}
	}
	other.finishOne(t)
	s.awaitFreePermits(t, "al", 4)
	s.awaitFreePermits(t, "bo", 4)
}

// TestDeniedRequestsHoldNoPermits checks that the end call of a denied request releases nothing,
// even if another filter of the chain had acquired a permit for the request.
func TestDeniedRequestsHoldNoPermits(t *testing.T) {
	t.Parallel()
	const two = `
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 4, unit: hour } }
---
domain: all
descriptors:
  - { key: all, rate_limit: { name: everybody, algorithm: concurrency, requests_per_unit: 5, unit: hour } }
`
	s := startTestbed(t, two, nil)
	denied := func(user string) {
		t.Helper()
		for range 20 {
			if got, err := s.get(t.Context(), user, "/"); got != http.StatusTooManyRequests {
				t.Fatalf("one more request of %s got %d (%v), want 429", user, got, err)
			}
		}
	}
	alStreams := s.startStreams(t, "al", 4)
	denied("al") // denied by the first filter
	boStreams := s.startStreams(t, "bo", 1)
	denied("bo") // denied by the second filter
	s.awaitFreePermits(t, "bo", 3)
	if got := s.freePermits(t, "al"); got != 0 {
		t.Errorf("al has %d free permits, want none", got)
	}
	if got := s.counter(t, "all", "all", "all").Remaining; got != 0 {
		t.Errorf("%d global permits are free, want none", got)
	}
	for range 4 {
		alStreams.finishOne(t)
	}
	boStreams.finishOne(t)
	s.awaitFreePermits(t, "al", 4)
	s.awaitFreePermits(t, "bo", 4)
	suite.Eventually(t, "all permits are free", func() bool { return s.counter(t, "all", "all", "all").Remaining == 5 })
}

// TestLargeChargesAreNotLeases charges hits as large as the number of a lease, by a rule without
// leases, in the same call that releases a lease of another rule. The 600 MB at the end of a stream
// must be charged, not mistaken for a lease.
func TestLargeChargesAreNotLeases(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, `
domain: d
descriptors:
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 4, unit: hour } }
  - { key: bytes, rate_limit: { name: bytes, unit: year, requests_per_unit: 2000000000 } }
`, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Bytes", "600000000") })
	window.AwaitHour(t)
	for want := 1_400_000_000; want > 0; want -= 600_000_000 {
		if got, err := s.get(t.Context(), "al", "/bytes"); got != http.StatusOK {
			t.Fatalf("status %d (%v), want 200", got, err)
		}
		suite.Eventually(t, fmt.Sprintf("%d bytes are left", want), func() bool { return s.counter(t, "d", "bytes", "al").Remaining == want })
	}
	s.awaitFreePermits(t, "al", 4)
}
