// Package admin is the HTTP API for operators, which the debug listener serves. It shows the state
// of the [answer.Service] and the [quota.Service], and changes counters and table rows:
//
//	handler.go   the paths
//	state.go     /api/v1/state: rates, denied keys, conditions (package live)
//	status.go    the status in that state: calls, connections, memory
//	page.go      /: the state as a web page
//	quota.go     limits that are divided among Envoys (package quota)
//	counters.go  /counters: look up the counters of a descriptor
//	usage.go     /usage, on the listener of /json: the limits of an end client
//	reset.go     /api/v1/reset: reset counters, or preview that
//	unmask.go    /api/v1/unmask: show the values of denied keys for a time
//	tables.go    /api/v1/tables: rows of tables
//	guard.go     authentication and authorization
//
// Files that end in _http.go parse requests and write responses. Package client is the client.
// Requests of Envoy do not use this package. It reads the rules and counters through
// [answer.Active].
package admin

import (
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// API is the API for operators. Its methods may be called concurrently.
type API struct {
	service *answer.Service
	metrics *telemetry.Metrics
	logger  *zap.Logger
	panics  *telemetry.Panics
	clock   *clock.Clock
	quotas  quota.Service
	guard   *guard

	mu      sync.Mutex // protects the rates
	hits    live.Rates[*telemetry.RuleCounters]
	unknown live.Rates[string] // rates of domains that no rule has
	calls   callRates
	ends    streamEnds
}

// New returns the API of a service. The caller must call [API.Watch].
func New(h *answer.Handler, quotas quota.Service, rights Rights) *API {
	a := &API{
		service: h.Service, metrics: h.Metrics, logger: h.Logger, panics: h.Panics, clock: h.Clock, quotas: quotas, guard: newGuard(h, rights),
	}
	h.Metrics.Rules.BeforeCollect(a.updateQuotaGauges)
	return a
}
