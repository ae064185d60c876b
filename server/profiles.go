package server

import (
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/web"
)

const profilesPath = "/debug/pprof/"

// profiles contains the pages of package pprof, by path.
var profiles = map[string]http.Handler{
	profilesPath:             profile(pprof.Index),
	profilesPath + "profile": profile(pprof.Profile),
	profilesPath + "symbol":  http.MaxBytesHandler(http.HandlerFunc(pprof.Symbol), web.MaxBody),
	profilesPath + "trace":   profile(pprof.Trace),
}

// profile returns the handler of a page that ignores request bodies: package pprof parses forms of
// any size, which it writes to disk, and reads the duration of a profile from them. Only /symbol
// needs a body.
func profile(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method Not Allowed: must be GET", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.NoBody
		if !isTimed(r) {
			page(w, r)
			return
		}
		select {
		case timedProfiles <- struct{}{}:
			defer func() { <-timedProfiles }()
			cpu.FromContext(r.Context()).Wait(func() { page(w, r) }) // it sleeps most of the time
		default:
			http.Error(w, "too many profiles are in progress", http.StatusServiceUnavailable)
		}
	})
}

// timedProfiles has an element for each profile with a duration in progress.
var timedProfiles = make(chan struct{}, 2)

// isTimed reports whether the requested profile has a duration.
func isTimed(r *http.Request) bool {
	page := strings.TrimPrefix(r.URL.Path, profilesPath)
	return page == "profile" || page == "trace" || r.URL.Query().Has("seconds")
}

// profileDuration returns the duration of the requested profile: the parameter seconds, parsed as
// in package pprof, or pprof's default of 30; 0 for other pages. It does not read the body, because
// r is not authorized yet.
func profileDuration(r *http.Request) time.Duration {
	if !strings.HasPrefix(r.URL.Path, profilesPath) {
		return 0
	}
	seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if err != nil || seconds <= 0 {
		seconds = 30
	}
	return time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
}
