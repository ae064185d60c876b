package telemetry

import (
	"context"
	"io"
	"testing"
	"time"

	"go.uber.org/zap"
)

// everySeries creates at least one series of every metric.
func everySeries(t *testing.T, m *Metrics) {
	t.Helper()
	m.WatchTable(func() TableStats {
		return TableStats{Bytes: 80, Used: 16, Reclaimed: 3, Classes: []ClassStats{
			{CounterBytes: 16, Capacity: 5, Live: 2, Evicted: 1},
			{Domain: "d", CounterBytes: 72, Capacity: 9},
		}}
	})
	m.UnknownDomains.Add([]byte("d"), 1)
	m.Quota.Unmatched.WithLabelValues("d").Inc()
	m.WatchLog(NewLogQueue(io.Discard))
	m.ConfigLoaded("abc", 12)
	m.ConfigRejected()
	m.TLS("grpc")
	m.XDS()
	m.SetTransport("builtin")
	m.State()
	m.Tables([]string{"customers"}, func(string) int { return 3 })
	m.Store([]string{"store", "memory", "fallback"}, []string{"acquired"}, []string{"timeout"}, func() bool { return true },
		func() map[string]bool { return map[string]bool{"redis:6379": true} }, func() time.Duration { return 0 })
	limit := configureLimits(m.Rules, []string{"d"}, RuleLimit{
		Key: RuleKey{Domain: "d", Rule: "k_v.l", Key1: "k_v", Key2: "l", Limit: "60/minute"}, Requests: 60, Window: time.Minute, Penalty: true, Divided: true,
	})[0]
	limit.AddLeases(1)
	limit.CountCostDue(false)
	limit.CountCost()
	s, err := NewStatsd(StatsdOptions{Network: "udp", Addr: "127.0.0.1:1", Interval: time.Hour}, m, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	tracing, err := NewTracing(t.Context(), TracingOptions{Protocol: "http"}, m, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracing.Shutdown(context.WithoutCancel(t.Context())) })
}
