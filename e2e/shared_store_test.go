package e2e_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

const sharedStoreRules = `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 57}
  - key: path
    value: /a_b
    descriptors:
      - key: method
        rate_limit: {unit: year, requests_per_unit: 57}
`

// TestSharedStoreWithRatelimit runs envoyproxy/ratelimit (the path in RATELIMIT_BIN) and sluice
// with one Valkey and the same environment and rules. Both use the same counters, exactly, and one
// continues where the other stopped.
func TestSharedStoreWithRatelimit(t *testing.T) {
	path := os.Getenv("RATELIMIT_BIN")
	if path == "" {
		suite.Skip(t, "RATELIMIT_BIN does not name a program of envoyproxy/ratelimit to run with sluice")
	}
	store := storetest.Start(t)
	dir := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(dir, "rules"), 0o750))
	must.OK(t, os.WriteFile(filepath.Join(dir, "rules", "rules.yaml"), []byte(sharedStoreRules), 0o600))
	environment := []string{
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + store.Addr, "USE_STATSD=false",
		"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true",
	}
	ours := suite.StartSluice(t, sluice.Options{
		Binary: programs.sluice, Env: environment,
		Args: []string{"--store-timeout", "1m", "--REDIS_TIMEOUT", "1m", "--store-fallback", "error"},
	})
	storetest.Eventually(t, "sluice has reached the store", func() bool {
		resp, err := http.Get("http://" + ours.Addr("http") + "/healthcheck")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	both := []rlsv3.RateLimitServiceClient{client(t, startRatelimit(t, path, environment)), client(t, ours.Addr("grpc"))}
	// Both use their own and the store's clocks, which are the same here.
	for _, entries := range [][]string{{"user", "alice"}, {"path", "/a_b", "method", "GET"}} {
		var mu sync.Mutex
		var left []uint32
		var callers sync.WaitGroup
		for n := range 8 {
			callers.Go(func() {
				for range 20 {
					over, remaining := sendHit(t, both[n%2], entries...)
					if !over {
						mu.Lock()
						left = append(left, remaining)
						mu.Unlock()
					}
				}
			})
		}
		callers.Wait()
		slices.Sort(left)
		want := make([]uint32, 57)
		for i := range want {
			want[i] = uint32(i)
		}
		if !slices.Equal(left, want) {
			t.Errorf("%v: admitted requests had %v remaining, want each of 0 to 56 once", entries, left)
		}
	}
	for i, one := range []rlsv3.RateLimitServiceClient{both[0], both[1], both[1], both[0], both[1]} {
		if over, remaining := sendHit(t, one, "user", "bob"); over || remaining != uint32(56-i) {
			t.Errorf("hit %d on one counter: over limit %v, %d remain, want %d", i+1, over, remaining, 56-i)
		}
	}
	// A value from the request that contains _ may use two counters in envoyproxy/ratelimit, and
	// uses one in sluice.
	for i, one := range []rlsv3.RateLimitServiceClient{both[0], both[0], both[1]} {
		want := []uint32{56, 55, 56}[i]
		if over, remaining := sendHit(t, one, "user", "a_b"); over || remaining != want {
			t.Errorf("hit %d on a counter with _: over limit %v, %d remain, want %d", i+1, over, remaining, want)
		}
	}
}

// startRatelimit starts envoyproxy/ratelimit, stops it when the test ends, and returns its gRPC
// address.
func startRatelimit(t *testing.T, path string, environment []string) string {
	t.Helper()
	var ports [3]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		_ = l.Close()
	}
	cmd := exec.Command(path)
	cmd.Env = append(cmd.Environ(), environment...)
	cmd.Env = append(cmd.Env, "GRPC_HOST=127.0.0.1", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2])
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatalf("RATELIMIT_BIN: %v", err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of envoyproxy/ratelimit:\n%s", p.Log())
		}
	})
	return "127.0.0.1:" + ports[0]
}

func client(t *testing.T, addr string) rlsv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return rlsv3.NewRateLimitServiceClient(conn)
}

// sendHit charges one hit.
func sendHit(t *testing.T, service rlsv3.RateLimitServiceClient, entries ...string) (over bool, remaining uint32) {
	t.Helper()
	var d commonv3.RateLimitDescriptor
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reply, err := service.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{&d}})
	if err != nil {
		t.Error(err)
		return true, 0
	}
	return reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT, reply.GetStatuses()[0].GetLimitRemaining()
}
