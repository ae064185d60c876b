package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// stateOf returns the state of sluice.
func stateOf(t *testing.T, s *sluice.Sluice) (state live.State) {
	t.Helper()
	must.OK(t, json.Unmarshal(suite.Get(t, "http://"+s.Addr("debug")+"/api/v1/state"), &state))
	return state
}

// awaitCondition waits until the state has a condition with the given code, and returns it. provoke
// is called before each reading; it may be nil.
func awaitCondition(t *testing.T, s *sluice.Sluice, code telemetry.Code, provoke func()) (c telemetry.Condition) {
	t.Helper()
	began := time.Now()
	suite.Eventually(t, "the condition "+string(code), func() bool {
		if provoke != nil {
			provoke()
		}
		all := stateOf(t, s).Conditions
		i := slices.IndexFunc(all, func(c telemetry.Condition) bool { return c.Code == code })
		if i >= 0 {
			c = all[i]
		}
		return i >= 0
	})
	t.Logf("the state has the condition %s after %v: %v %q", code, time.Since(began).Round(time.Millisecond), c.Fields, c.Lines)
	return c
}

// TestGRPCOnHTTPPorts has an Envoy whose cluster points to each HTTP port.
func TestGRPCOnHTTPPorts(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"http", "debug", "metrics"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, rulesWithLimit(5))}})
			routes := `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`
			p := startProxyTo(t, []listener{{routes: routes}}, "", []string{limits.Addr(port)})
			if got := p.get(t, "/", "x-user: al"); got.status != http.StatusInternalServerError {
				t.Errorf("status %d, want 500: Envoy cannot get a decision", got.status)
			}
			c := awaitCondition(t, limits, telemetry.GRPCOnHTTPPort, func() { p.get(t, "/", "x-user: al") })
			if c.Fields["listener"] != port || !strings.HasPrefix(fmt.Sprint(c.Fields["peer"]), "127.0.0.1:") {
				t.Errorf("the fields are %v, want the listener %s and the address of Envoy", c.Fields, port)
			}
			if n := metric(t, limits, "sluice_rejected_requests_total", `reason="grpc_on_http_port"`); n == 0 {
				t.Error("the metric does not count the requests")
			}
		})
	}
}

// TestReplicasThatCountSeparately has an Envoy with two replicas, whose client gets twice the
// limit. Replicas with --sharded are no condition, as replicas with a store.
func TestReplicasThatCountSeparately(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags []string
		alone bool
	}{{nil, true}, {[]string{"--sharded"}, false}} {
		t.Run(strings.Join(tt.flags, ""), func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--config", suite.WriteRules(t, rulesWithLimit(1))}, tt.flags...)
			a, b := startSluice(t, sluice.Options{Args: args}), startSluice(t, sluice.Options{Args: args})
			p := startProxyTo(t, []listener{{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`}}, "", []string{a.Addr("grpc"), b.Addr("grpc")})
			window.AwaitHour(t)
			admitted := 0
			for range 20 {
				if p.get(t, "/", "x-user: al").status == http.StatusOK {
					admitted++
				}
			}
			if admitted != 2 {
				t.Errorf("%d requests were admitted, want 1 by each replica", admitted)
			}
			printed := top(t, a, "--addr", b.Addr("debug"))
			if strings.Contains(printed, "2 replicas count separately: each grants the whole limit") != tt.alone {
				t.Errorf("top reports replicas that count separately: want %t:\n%s", tt.alone, printed)
			}
			if got, gauge := stateOf(t, a).CountsAlone, metric(t, a, "sluice_counts_alone"); got != tt.alone || (gauge == 1) != tt.alone {
				t.Errorf("counts_alone is %t, the metric %v; want %t", got, gauge, tt.alone)
			}
		})
	}
}
