package server

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestRequestsOfAnySize sends requests concurrently on one connection, smaller and larger than the
// initial window of a stream.
func TestRequestsOfAnySize(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	sizes := rand.New(rand.NewPCG(1, 2))
	var calls sync.WaitGroup
	for range 300 {
		size := 1 << sizes.IntN(19)
		size += sizes.IntN(size)
		calls.Go(func() {
			request := simpleRequest()
			request.Descriptors[0].Entries[0].Value = strings.Repeat("v", size)
			if _, err := client.ShouldRateLimit(t.Context(), request); err != nil {
				t.Errorf("a value of %d bytes: %v", size, err)
			}
		})
	}
	calls.Wait()
	if why := endedBy(t, s); why != nil {
		t.Errorf("closed connections by reason: %v, want none", why)
	}
}
