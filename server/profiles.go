package server

import (
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"time"
)

const profilesPath = "/debug/pprof/"

// profiles are the pages of package pprof, by path.
var profiles = map[string]http.Handler{
	profilesPath:             http.HandlerFunc(pprof.Index),
	profilesPath + "cmdline": http.HandlerFunc(commandLine),
	profilesPath + "profile": http.HandlerFunc(pprof.Profile),
	profilesPath + "symbol":  http.HandlerFunc(pprof.Symbol),
	profilesPath + "trace":   http.HandlerFunc(pprof.Trace),
}

// profileTime returns how long the profile that r asks for takes: the seconds of its query, as package pprof reads
// them, or pprof's default of 30; 0 for any other page.
func profileTime(r *http.Request) time.Duration {
	if !strings.HasPrefix(r.URL.Path, profilesPath) {
		return 0
	}
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || seconds <= 0 {
		seconds = 30
	}
	return time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
}

// commandLine answers as [pprof.Cmdline] does, with the passwords of URLs replaced.
func commandLine(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	args := make([]string, len(os.Args))
	for i, arg := range os.Args {
		args[i] = redact(arg)
	}
	_, _ = w.Write([]byte(strings.Join(args, "\x00"))) // a client that went away
}

// redact replaces the user and the password of a URL in an argument, such as --store=redis://user:password@host. A
// host, a port and a path contain no @.
func redact(arg string) string {
	scheme := strings.Index(arg, "://")
	at := strings.LastIndexByte(arg, '@')
	if scheme < 0 || at < scheme {
		return arg
	}
	return arg[:scheme] + "://xxxxx" + arg[at:]
}
