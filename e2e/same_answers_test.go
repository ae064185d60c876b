package e2e_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// equivalenceRules use features of envoyproxy/ratelimit only.
const equivalenceRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 4}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 6}}
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: blocked, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: all, value: many, rate_limit: {unlimited: true}}
  - key: path
    value: /a*
    descriptors: [{key: method, rate_limit: {unit: year, requests_per_unit: 7}}]
`

// TestSameAnswersAsRatelimit sends the same random requests to sluice in memory, sluice with a
// store and exact names, sluice with envoyproxy/ratelimit's names, and envoyproxy/ratelimit itself
// if RATELIMIT_BIN is its path. Requests include zero hits, weights, overrides that share a rule's
// counter, and several descriptors. All answers must be equal. SLUICE_REQUESTS sets the number of
// requests, SLUICE_SEED repeats a run.
func TestSameAnswersAsRatelimit(t *testing.T) {
	requests, seed := envOr(t, "SLUICE_REQUESTS", 2000), envOr(t, "SLUICE_SEED", 27)
	_ = window.Await(t.Context(), time.Duration(requests)*5*time.Millisecond+window.Margin(), func(left time.Duration) { t.Logf("waiting %v for the next hour", left) })
	dir := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(dir, "rules"), 0o750))
	must.OK(t, os.WriteFile(filepath.Join(dir, "rules", "rules.yaml"), []byte(equivalenceRules), 0o600))
	environment := func(store string) []string {
		env := []string{"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false"}
		if store == "" {
			return append(env, "BACKEND_TYPE=memory")
		}
		return append(env, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+store, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")
	}
	type service struct {
		name string
		rlsv3.RateLimitServiceClient
	}
	start := func(name, store string, args ...string) service {
		if store != "" {
			args = append(args, "--store-timeout", "1m", "--REDIS_TIMEOUT", "1m", "--store-fallback", "error")
		}
		s := suite.StartSluice(t, sluice.Options{Binary: programs.sluice, Env: environment(store), Args: args})
		storetest.Eventually(t, name+" is ready", func() bool {
			resp, err := http.Get("http://" + s.Addr("http") + "/healthcheck")
			return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		})
		return service{name, client(t, s.Addr("grpc"))}
	}
	all := []service{
		start("memory", ""),
		start("a store", storetest.Start(t).Addr, "--store-names", "exact"),
		start("ratelimit's names", storetest.Start(t).Addr),
	}
	if path := os.Getenv("RATELIMIT_BIN"); path != "" {
		all = append(all, service{"envoyproxy/ratelimit", client(t, startRatelimit(t, path, environment(storetest.Start(t).Addr)))})
	} else {
		t.Log("without envoyproxy/ratelimit: RATELIMIT_BIN is not set")
	}
	random := rand.New(rand.NewPCG(seed, seed))
	over := 0
	for n := range requests {
		req := randomRequest(random, int(n))
		var first *rlsv3.RateLimitResponse
		for _, s := range all {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			reply, err := s.ShouldRateLimit(ctx, req)
			cancel()
			if err != nil {
				t.Fatalf("seed %d, request %d: %s answered %v\n%v", seed, n, s.name, err, req)
			}
			for _, status := range reply.GetStatuses() {
				status.DurationUntilReset = nil // may differ by a second
			}
			if first == nil {
				first = reply
			} else if !proto.Equal(first, reply) {
				t.Fatalf("seed %d, request %d: %v\n%s answered %v\n%s answered %v", seed, n, req, all[0].name, first, s.name, reply)
			}
		}
		if first.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			over++
		}
	}
	if over == 0 || uint64(over) == requests {
		t.Errorf("%d of %d requests were over limit, want some", over, requests)
	}
	t.Logf("%d services, %d requests, %d over limit", len(all), requests, over)
}

// randomRequest returns a random request. Values change slowly, so that counters reach their
// limits.
func randomRequest(random *rand.Rand, n int) *rlsv3.RateLimitRequest {
	req := &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: []uint32{0, 0, 0, 1, 2}[random.IntN(5)]}
	for range 1 + random.IntN(3)*random.IntN(2) {
		value := strconv.Itoa(n/60 + random.IntN(2))
		entry := func(key, value string) *commonv3.RateLimitDescriptor_Entry {
			return &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value}
		}
		d := &commonv3.RateLimitDescriptor{}
		switch key := []string{"user", "user", "user", "shadow", "quota", "tokens", "blocked", "all", "path"}[random.IntN(9)]; key {
		case "all":
			d.Entries = append(d.Entries, entry(key, "many"))
		case "path":
			d.Entries = append(d.Entries, entry(key, "/a"+value), entry("method", "GET"))
		default:
			d.Entries = append(d.Entries, entry(key, value))
		}
		switch random.IntN(4) {
		case 0: // zero hits
			d.HitsAddend = wrapperspb.UInt64(0)
		case 1:
			d.HitsAddend = wrapperspb.UInt64([]uint64{1, 2, 5, 6, 400, 1 << 20}[random.IntN(6)])
		}
		if random.IntN(5) == 0 {
			d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(random.IntN(12)), Unit: typev3.RateLimitUnit_YEAR}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// envOr returns the number in an environment variable, or a default.
func envOr(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
