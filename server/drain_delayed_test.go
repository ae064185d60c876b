package server

import (
	"runtime"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestDrainSendsDelayedReplies stops a server while replies are delayed. All must be sent.
func TestDrainSendsDelayedReplies(t *testing.T) {
	s := service(t, answer.Settings{}, shaping)
	r := serve(t, s, Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	const calls = 20
	results := make(chan error, calls)
	for range calls {
		go func() {
			reply, err := client.ShouldRateLimit(t.Context(), simpleRequest())
			if err == nil && reply.GetOverallCode() != rls.RateLimitResponse_OK {
				err = status.Error(codes.ResourceExhausted, "denied")
			}
			results <- err
		}()
	}
	for testutil.ToFloat64(s.Metrics().Calls.ShouldRateLimit.Requests) < calls {
		runtime.Gosched() // until all calls have a reply or are delayed
	}
	r.stop()
	for range calls {
		if err := <-results; err != nil {
			t.Errorf("a delayed call failed: %v", err)
		}
	}
}
