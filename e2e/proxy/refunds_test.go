//go:build more

package proxy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// client calls sluice directly, without Envoy.
type client struct {
	t *testing.T
	rls.RateLimitServiceClient
}

// verdict is the status of the only descriptor of a reply.
type verdict struct {
	passed    bool
	remaining uint32
	// charged is the value in --decision-metadata, negative for a refund.
	charged float64
}

func (c client) hit(user string, hits uint64) verdict    { return c.call(user, hits, false) }
func (c client) refund(user string, hits uint64) verdict { return c.call(user, hits, true) }

func (c client) call(user string, hits uint64, refund bool) verdict {
	c.t.Helper()
	got, err := c.ShouldRateLimit(c.t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries:        []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
		HitsAddend:     wrapperspb.UInt64(hits),
		IsNegativeHits: refund,
	}}})
	must.OK(c.t, err)
	decided := got.GetDynamicMetadata().GetFields()["sluice"].GetStructValue().GetFields()["decisions"]
	v := verdict{passed: got.GetOverallCode() == rls.RateLimitResponse_OK, remaining: got.GetStatuses()[0].GetLimitRemaining()}
	for _, d := range decided.GetListValue().GetValues() {
		v.charged = d.GetStructValue().GetFields()["charged"].GetNumberValue()
	}
	return v
}

// algorithms contains rule fields of limits that each admit 20 hits.
var algorithms = map[string]string{
	"fixed_window":   "",
	"sliding_window": ", sub_windows: 24", // sub-windows of an hour; window.AwaitHour avoids the end of one
	"sliding_log":    "",
	"token_bucket":   "",
	"leaky_bucket":   ", slack: 19",
}

// TestRefundsOfDeniedRequests simulates an attacker that refunds the hits of every denied request.
// If denied hits are not charged, it gains the refunded hits, but never has more than a full
// counter. If they are charged, or if it refunds admitted hits, it gains nothing.
func TestRefundsOfDeniedRequests(t *testing.T) {
	t.Parallel()
	const (
		limit = 20
		hits  = 5
		tries = 10
	)
	for algorithm, words := range algorithms {
		for _, counted := range []bool{false, true} {
			name := fmt.Sprint(algorithm, "/count_refused=", counted)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				limits := startSluice(t, sluice.Options{Args: []string{"--decision-metadata", "--config", suite.WriteRules(t, fmt.Sprintf(`
domain: d
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: %d, algorithm: %s, count_refused: %t%s }
`, limit, algorithm, counted, words))}})
				c := client{t, rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))}
				window.AwaitHour(t)

				// Every second try is admitted unless denied hits are charged. In a full log, a denied
				// hit only replaces an older one.
				want := tries / 2 * hits
				if counted && algorithm != "sliding_log" {
					want = 0
				}
				if got := c.hitsGained("attacker", limit, hits, tries, func(verdict) uint64 { return hits }); got != want {
					t.Errorf("refunds of denied hits gained %d, want %d", got, want)
				}
				c.refund("attacker", 1_000_000)
				if v := c.hit("attacker", limit+1); v.passed {
					t.Errorf("%d hits were admitted after a large refund, want them denied", limit+1)
				}
				for _, hits := range []uint64{1, hits, 1_000_000} {
					user := fmt.Sprint("honest", hits)
					got := c.hitsGained(user, limit, hits, tries, func(v verdict) uint64 { return uint64(v.charged) })
					if got != 0 {
						t.Errorf("refunds of charged hits gained %d with %d hits per request, want 0", got, hits)
					}
				}
			})
		}
	}
}

// hitsGained exhausts a counter. It then makes the given number of tries, with a refund after each
// denial, and returns the number of hits admitted beyond the limit.
func (c client) hitsGained(user string, limit, hits uint64, tries int, refund func(verdict) uint64) int {
	c.t.Helper()
	if v := c.hit(user, limit); !v.passed || v.remaining != 0 {
		c.t.Fatalf("the first %d hits: %+v, want them admitted and 0 remaining", limit, v)
	}
	gain := 0
	for range tries {
		v := c.hit(user, hits)
		if v.passed {
			gain += int(hits)
			continue
		}
		c.refund(user, refund(v))
	}
	return gain
}

// TestNoRefundOfFinishedSubWindows refunds hits that are a second old in windows with sub-windows
// of a second.
func TestNoRefundOfFinishedSubWindows(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--decision-metadata", "--config", suite.WriteRules(t, `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 20, algorithm: sliding_window, sub_windows: 60 }
`)}})
	c := client{t, rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))}
	c.hit("al", 20)
	<-time.After(time.Second)
	if v := c.refund("al", 20); v.charged != 0 {
		t.Errorf("%v hits were refunded, want none", -v.charged)
	}
	if v := c.hit("al", 1); v.passed {
		t.Error("a hit was admitted after the refund, want it denied")
	}
}

// TestNoRefundWhileRequestsWait refunds admitted hits while delayed requests wait.
func TestNoRefundWhileRequestsWait(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--decision-metadata", "--config", suite.WriteRules(t, `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 120, algorithm: leaky_bucket, slack: 4, max_wait: 60s, max_waiting: 2 }
`)}})
	c := client{t, rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))}
	c.hit("al", 5)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The reply is delayed until the call is cancelled.
		_, _ = c.ShouldRateLimit(ctx, request())
	}()
	waiting := func(want float64) func() bool {
		return func() bool { return metric(t, limits, "sluice_delayed_responses_pending") == want }
	}
	suite.Eventually(t, "a request waits", waiting(1))
	if v := c.refund("al", 5); v.charged != 0 || v.remaining != 1 {
		t.Errorf("a refund while a request waits: %+v, want none and 1 remaining", v)
	}
	cancel()
	<-ended
	suite.Eventually(t, "no request waits", waiting(0))
	if v := c.refund("al", 5); v.charged != -5 || v.remaining != 7 {
		t.Errorf("a refund without a waiting request: %+v, want 5 and 7 remaining", v)
	}
}
