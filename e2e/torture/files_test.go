//go:build torture

package torture

import (
	"context"
	"net"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestOpenFileLimit limits sluice to 128 open files and connects 200 more clients. The first
// clients are served throughout, and rules are reloaded. After the others have disconnected,
// new clients are served.
func TestOpenFileLimit(t *testing.T) {
	rnd := Rand(t)
	ledger := NewLedger(200, 100)
	config := suite.WriteRules(t, ledger.Rules())
	s := Start(t, Options{
		Args:    []string{"--config", config},
		Prepare: RunUnder("sh", "-c", `ulimit -n 128 && exec "$0" "$@"`),
	})
	call := ledger.Caller(t, s.Addr("grpc"), rnd)
	load := StartLoad(t, LoadOptions{Rate: Rate, Call: call})
	load.Run(t, time.Second)
	load.Phase("crowded")
	var crowd []net.Conn
	leave := func() {
		for _, conn := range crowd {
			_ = conn.Close() // may already be closed
		}
	}
	defer leave()
	for range 200 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr("grpc"))
		must.OK(t, err)
		crowd = append(crowd, conn)
	}
	suite.Eventually(t, "connections are rejected", func() bool {
		return suite.Metrics(t, s).Sum("sluice_rejected_connections_total") > 0
	})
	most := Measure(t, s).Files
	suite.Replace(t, config, ledger.Rules("  - { key: changes, rate_limit: { unit: hour, requests_per_unit: 7 } }"))
	suite.Eventually(t, "the rules are loaded", func() bool { return limitOf(t, s, "changes") == 7 })
	load.Run(t, time.Second)
	load.Phase("after")
	leave()
	fresh := rls.NewRateLimitServiceClient(Dial(t, s.Addr("grpc")))
	left := time.Now()
	suite.Eventually(t, "a new client is served", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := ledger.Call(ctx, fresh, Key{rules[0].name, "v0"})
		return err == nil
	})
	t.Logf("a new client was served %v after the others had disconnected; at most %d files", time.Since(left), most)
	load.Run(t, time.Second)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before", "crowded", "after")
	report.NoErrors(t, "before", "crowded", "after")
	ledger.CheckCounters(t, s)
	if most > 128 {
		t.Errorf("%d files were open, want at most 128: the limit was not applied", most)
	}
}
