package admin

import (
	"maps"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/web"
)

const debugIndex = `sluice debug listener
/               the state as a web page; from this machine only
/api/v1/state   the state as JSON; see docs/state.md
/api/v1/reset   POST resets the counters of a descriptor or of denied keys, GET previews that
/api/v1/unmask  ?for=10m: POST shows the values of denied keys for a time
/api/v1/tables  tables; /NAME/KEY is a row, to GET, PUT or DELETE
/rlconfig       the active rules, one line per limit
/counters       ?domain=D&descriptor=k=v,k2=v2 looks up the counters of a descriptor; from this machine only
/debug/pprof/   profiles of the process
`

// Handler returns the handler of the debug listener, with additional pages by path. Without
// configured rights, most pages are available to everyone who can connect.
func (a *API) Handler(more map[string]http.Handler) http.Handler {
	g := a.guard
	mux := http.NewServeMux()
	mux.Handle(StatePath, g.protectEndpoint(a.stateEndpoint()))
	mux.Handle(UnmaskPath, g.protectEndpoint(a.unmaskEndpoint()))
	mux.Handle(ResetPath, g.protectEndpoint(a.resetEndpoint()))
	mux.Handle(CountersPath, g.protectEndpoint(a.countersEndpoint()))
	mux.Handle("/{$}", g.protectPage(http.HandlerFunc(a.writePage)))
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
