package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

const debugIndex = `sluice debug listener
/               for browsers: what is so now; from this machine only
/api/v1/state   the same as JSON; see docs/state.md
/api/v1/reset   POST resets counters of keys that are denied, after a preview
/rlconfig       the rules in force, a line for each limit
/stats          all metrics as text
/counters       ?domain=D&descriptor=k=v,k2=v2 looks up the counters of a descriptor,
                with DELETE it resets them; from this machine only
/debug/pprof/   profiles of the process
`

// debugHandler serves pages that operators read by hand. It has no authentication, so it belongs
// on loopback.
func debugHandler(h *answer.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", newPageHandler(h))
	mux.HandleFunc("/rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if set := h.Service.Rules(); set != nil {
			if err := set.Dump(w); err != nil {
				h.Logger.Debug("write /rlconfig", zap.Error(err))
			}
		}
	})
	g := newGuard()
	mux.Handle(statePath, g.protect(stateEndpoint(h)))
	mux.Handle(resetPath, g.protect(newResetHandler(h).endpoint()))
	mux.Handle("/counters", g.protect(countersEndpoint(h)))
	mux.Handle("/stats", promhttp.HandlerFor(h.Metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
