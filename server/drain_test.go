package server

import (
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestCallsInFlightAreAnswered stops a server during calls, of which none may fail.
func TestCallsInFlightAreAnswered(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	conn := r.dial(t)
	checkOK(t, conn)
	const callers = 8
	failed := make(chan error, callers)
	for range callers {
		go func() {
			client := rls.NewRateLimitServiceClient(conn)
			for n := 0; ; n++ {
				if _, err := client.ShouldRateLimit(t.Context(), simpleRequest()); err != nil {
					// The listener is closed, so the call never reached the server.
					if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connection refused") {
						failed <- err
						return
					}
					failed <- nil
					return
				}
				if n == 100 {
					r.stop()
				}
			}
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			t.Errorf("a call failed: %v", err)
		}
	}
}
