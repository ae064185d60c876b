package server

import (
	"maps"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

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

// debugHandler serves pages that operators read by hand. Without rights most of them answer everybody,
// so the listener belongs on loopback then.
func debugHandler(h *answer.Handler, rights DebugRights) http.Handler {
	g, mux := newGuard(h, rights), http.NewServeMux()
	mux.Handle(statePath, g.protect(stateEndpoint(h)))
	mux.Handle(resetPath, g.protect(newResetHandler(h).endpoint()))
	mux.Handle("/counters", g.protect(countersEndpoint(h)))
	mux.Handle("/{$}", g.look(newPageHandler(h, g)))
	pages := map[string]http.Handler{
		"/rlconfig": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if set := h.Service.Rules(); set != nil {
				if err := set.Dump(&paced{ResponseWriter: w}); err != nil {
					h.Logger.Debug("write /rlconfig", zap.Error(err))
				}
			}
		}),
		"/stats": newScrapes(h.Metrics, promhttp.HandlerOpts{}),
	}
	maps.Copy(pages, profiles)
	for path, page := range pages {
		mux.Handle(path, g.look(g.noOtherSite(page)))
	}
	all := &tablesHandler{h, g}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would take an empty value between two slashes for a mistake.
		if path := r.URL.EscapedPath(); path == tablesPath || strings.HasPrefix(path, tablesPath+"/") {
			all.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
