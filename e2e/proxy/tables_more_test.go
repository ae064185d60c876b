//go:build more

package proxy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestTableRowsWithStore has two replicas use one store and the limits of one table. For each
// algorithm exactly the row's limit passes, and a changed row keeps the used hits.
func TestTableRowsWithStore(t *testing.T) {
	store := storetest.Start(t)
	table := filepath.Join(t.TempDir(), "users.csv")
	rows := "user,requests_per_unit,unlimited\n"
	names := []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"}
	suite.Replace(t, table, rows+"al,7,\nfree,,true\n")
	var rules strings.Builder
	rules.WriteString("domain: d\ndescriptors:\n")
	for _, name := range names {
		more := ""
		if name == "leaky_bucket" {
			more = ", slack: 3"
		}
		fmt.Fprintf(&rules, "  - {key: rule, value: %s, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 3, algorithm: %[1]s, count_refused: false, table: users%s}}]}\n", name, more)
	}
	args := []string{"--config", suite.WriteRules(t, rules.String()), "--table", "users=" + table, "--store", "redis://" + store.Addr, "--store-timeout", "60s", "--REDIS_TIMEOUT", "60s", "--store-fallback", "error"}
	replicas := []*sluice.Sluice{startSluice(t, sluice.Options{Args: args}), startSluice(t, sluice.Options{Args: args})}
	var clients []rls.RateLimitServiceClient
	for _, s := range replicas {
		awaitStore(t, s)
		clients = append(clients, rls.NewRateLimitServiceClient(dial(t, s.Addr("grpc"))))
	}
	passes := func(name, user string, most int) (passed int) {
		t.Helper()
		for ; passed < most; passed++ {
			reply, err := clients[passed%2].ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "rule", Value: name}, {Key: "user", Value: user}}},
			}})
			must.OK(t, err)
			if reply.GetOverallCode() != rls.RateLimitResponse_OK {
				return passed
			}
		}
		return passed
	}
	own := map[string]int{"leaky_bucket": 4}
	for _, name := range names {
		if got, want := passes(name, "bo", 100), max(3, own[name]); got != want {
			t.Errorf("%s: %d requests passed with the rule's limit, want %d", name, got, want)
		}
		if got, want := passes(name, "al", 100), map[bool]int{false: 7, true: 4}[name == "leaky_bucket"]; got != want {
			t.Errorf("%s: %d requests passed with the row's limit, want %d", name, got, want)
		}
		if got := passes(name, "free", 50); got != 50 {
			t.Errorf("%s: %d requests passed with an unlimited row", name, got)
		}
	}
	suite.Replace(t, table, rows+"al,10,\n")
	for _, s := range replicas {
		suite.Eventually(t, "the new rows", func() bool { return strings.Contains(s.Log(), `"table":"users","rows":1}`) })
	}
	for _, name := range []string{"fixed_window", "sliding_window", "sliding_log"} {
		if got := passes(name, "al", 100); got != 3 {
			t.Errorf("%s: %d more requests passed with a row of 10, want 3", name, got)
		}
	}
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: patience,
		}),
	)
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}
