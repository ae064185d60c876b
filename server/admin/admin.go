// Package admin is the API for operators of a running sluice, which the debug listener serves. It shows the state of the
// [answer.Service] and of the [rlqs.Service], and changes counters and rows of tables:
//
//	state.go     /api/v1/state: rates, denied keys, conditions (package live)
//	page.go      /: the same for browsers
//	quota.go     the limits that Envoys divide (package rlqs)
//	counters.go  /counters: the counters of one descriptor, to look up or reset
//	reset.go     /api/v1/reset: the counters of denied keys, after a preview
//	tables.go    /api/v1/tables: numbers of limits by key
//	guard.go     the rights of clients
//
// Files that end in _http.go read requests and write responses. Package client has the client's side. Requests of Envoy do
// not come here: [answer.Service] has what they need, and [answer.Active] gives this package access to it.
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
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// API answers operators. Its methods may be called concurrently.
type API struct {
	service *answer.Service
	metrics *telemetry.Metrics
	logger  *zap.Logger
	panics  *telemetry.Panics
	clock   *clock.Clock
	quotas  *rlqs.Service
	guard   *guard

	mu      sync.Mutex // guards the rates
	hits    live.Rates[*telemetry.RuleCounters]
	unknown live.Rates[string] // of domains that no rule has
}

// New returns the API of a service. The caller calls [API.Watch].
func New(h *answer.Handler, quotas *rlqs.Service, rights Rights) *API {
	a := &API{service: h.Service, metrics: h.Metrics, logger: h.Logger, panics: h.Panics, clock: h.Clock, quotas: quotas, guard: newGuard(h, rights)}
	h.Metrics.Rules.BeforeCollect(a.showQuotas)
	return a
}

const debugIndex = `sluice debug listener
/               for browsers: what is so now; from this machine only
/api/v1/state   the same as JSON; see docs/state.md
/api/v1/reset   POST resets counters of keys that are denied, after a preview
/api/v1/tables  numbers of limits by key: /NAME/KEY is a row, to GET, PUT or DELETE
/rlconfig       the rules in force, a line for each limit
/stats          all metrics as text
/counters       ?domain=D&descriptor=k=v,k2=v2 looks up the counters of a descriptor,
                with DELETE it resets them; from this machine only
/debug/pprof/   profiles of the process
`

// Handler returns the handler of the debug listener, with some more pages by their paths. Without rights most pages answer
// everybody, so the listener belongs on loopback then.
func (a *API) Handler(more map[string]http.Handler) http.Handler {
	g, mux := a.guard, http.NewServeMux()
	mux.Handle(StatePath, g.protect(a.stateEndpoint()))
	mux.Handle(ResetPath, g.protect(newResetHandler(a).endpoint()))
	mux.Handle(CountersPath, g.protect(a.countersEndpoint()))
	mux.Handle("/{$}", g.look(newPageHandler(a)))
	pages := map[string]http.Handler{"/rlconfig": http.HandlerFunc(a.showRules)}
	maps.Copy(pages, more)
	for path, page := range pages {
		mux.Handle(path, g.look(g.noOtherSite(page)))
	}
	all := &tablesHandler{a}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would take an empty value between two slashes for a mistake.
		if path := r.URL.EscapedPath(); path == TablesPath || strings.HasPrefix(path, TablesPath+"/") {
			all.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// showRules writes the active rules.
func (a *API) showRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if set := a.service.Rules(); set != nil {
		if err := set.Dump(&web.Paced{ResponseWriter: w}); err != nil {
			a.logger.Debug("write /rlconfig", zap.Error(err))
		}
	}
}
