// Package admin is the HTTP API for operators, which the debug listener serves. It shows the state
// of the [answer.Service] and the [quota.Service], and changes counters and table rows:
//
//	state.go     /api/v1/state: rates, denied keys, conditions (package live)
//	status.go    the status in that state: calls, connections, memory
//	page.go      /: the state as a web page
//	quota.go     limits that are divided among Envoys (package quota)
//	blocks.go    hits that are charged to a store in advance
//	counters.go  /counters: look up or reset the counters of a descriptor
//	reset.go     /api/v1/reset: reset the counters of denied keys, after a preview
//	unmask.go    /api/v1/unmask: show the values of denied keys for a time
//	tables.go    /api/v1/tables: rows of tables
//	guard.go     authentication and authorization
//
// Files that end in _http.go parse requests and write responses. Package client is the client.
// Requests of Envoy do not use this package. It reads the rules and counters through
// [answer.Active].
package admin

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/web"
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
	a := &API{service: h.Service, metrics: h.Metrics, logger: h.Logger, panics: h.Panics, clock: h.Clock, quotas: quotas, guard: newGuard(h, rights)}
	h.Metrics.Rules.BeforeCollect(a.updateQuotaGauges)
	return a
}

const debugIndex = `sluice debug listener
/               the state as a web page; from this machine only
/api/v1/state   the state as JSON; see docs/state.md
/api/v1/reset   POST resets the counters of denied keys, after a preview
/api/v1/unmask  ?for=10m: POST shows the values of denied keys for a time
/api/v1/tables  tables; /NAME/KEY is a row, to GET, PUT or DELETE
/rlconfig       the active rules, one line per limit
/counters       ?domain=D&descriptor=k=v,k2=v2 looks up the counters of a descriptor,
                DELETE resets them; from this machine only
/debug/pprof/   profiles of the process
`

// Handler returns the handler of the debug listener, with additional pages by path. Without
// configured rights, most pages are available to everyone who can connect.
func (a *API) Handler(more map[string]http.Handler) http.Handler {
	g, mux := a.guard, http.NewServeMux()
	mux.Handle(StatePath, g.protectEndpoint(a.stateEndpoint()))
	mux.Handle(UnmaskPath, g.protectEndpoint(a.unmaskEndpoint()))
	mux.Handle(ResetPath, g.protectEndpoint(newResetHandler(a).endpoint()))
	mux.Handle(CountersPath, g.protectEndpoint(a.countersEndpoint()))
	mux.Handle("/{$}", g.protectPage(newPageHandler(a)))
	pages := map[string]http.Handler{"/rlconfig": http.HandlerFunc(a.writeRules)}
	maps.Copy(pages, more)
	for path, page := range pages {
		mux.Handle(path, g.protectPage(g.rejectRebinding(page)))
	}
	tables := &tablesHandler{a, make(chan struct{}, 1)}
	return rejectCrossSite(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would redirect paths with an empty value between two slashes.
		if path := r.URL.EscapedPath(); path == TablesPath || strings.HasPrefix(path, TablesPath+"/") {
			tables.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// writeRules writes the active rules.
func (a *API) writeRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if set := a.service.Rules(); set != nil {
		if err := set.Dump(&web.PacedWriter{ResponseWriter: w}); err != nil {
			a.logger.Debug("write /rlconfig", zap.Error(err))
		}
	}
}
