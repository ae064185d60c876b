package e2e_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestRestartsLoseNoHits restarts sluice with a state file under load. The hits admitted before,
// between and after the restarts are exactly the limit.
func TestRestartsLoseNoHits(t *testing.T) {
	const limit, rounds, callers = 3000, 4, 4
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte(`
domain: d
descriptors:
  - key: fixed
    rate_limit: { unit: year, requests_per_unit: 3000 }
  - key: sliding
    rate_limit: { unit: year, requests_per_unit: 3000, algorithm: sliding_window }
  - key: bucket
    rate_limit: { unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: 3000 }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := []string{"fixed", "sliding", "bucket"}
	var admitted, denied [3]atomic.Int64
	for round := range rounds {
		s := suite.StartSluice(t, sluice.Options{
			Binary: programs.sluice,
			Args:   []string{"--config", rules, "--state-file", filepath.Join(dir, "state")},
		})
		var group sync.WaitGroup
		enough := make(chan struct{}, callers*len(keys))
		last := round == rounds-1
		for range callers {
			for k, key := range keys {
				group.Go(func() {
					conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					client := rls.NewRateLimitServiceClient(conn)
					request := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
						{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}},
					}}
					// In the last round until the limit is reached, in earlier ones until the
					// server ends.
					for n := 0; !last || denied[k].Load() == 0; n++ {
						if n == limit/rounds/callers/2 {
							enough <- struct{}{}
						}
						reply, err := client.ShouldRateLimit(t.Context(), request)
						switch {
						case err != nil && last:
							t.Error(err)
							return
						case err != nil:
							return
						case reply.GetOverallCode() == rls.RateLimitResponse_OK:
							admitted[k].Add(1)
						default:
							denied[k].Add(1)
						}
					}
				})
			}
		}
		if last {
			group.Wait()
		} else {
			<-enough // other clients continue
		}
		if code, err := s.Stop(t.Context()); code != 0 || err != nil {
			t.Fatalf("Stop() = %d, %v; log of sluice:\n%s", code, err, s.Log())
		}
		group.Wait()
	}
	for k, key := range keys {
		if got := admitted[k].Load(); got != limit {
			t.Errorf("%q: %d hits admitted over %d restarts, want %d", key, got, rounds-1, limit)
		}
	}
}
