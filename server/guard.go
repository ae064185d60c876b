package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// A guard says who may ask what of the debug listener. To look and to change are two rights.
//
// A change lifts limits, and a look tells of clients. So this machine alone has rights: both ends
// of the connection must be loopback or a unix socket. `kubectl port-forward` is loopback; what a
// sidecar proxy forwards to the pod's address is not. Two checks keep pages in a browser from
// getting around this. The Host must be loopback, which a name that was rebound by DNS is not. And
// a change that a page of another origin asks for is rejected.
type guard struct {
	origins *http.CrossOriginProtection
}

func newGuard() *guard { return &guard{http.NewCrossOriginProtection()} }

// An endpoint answers in JSON.
type endpoint struct {
	// methods are those that are answered, each with the right that it needs. HEAD goes with GET.
	methods map[string]access.Right
	// must names them for people, such as "GET to look up or DELETE to reset".
	must string
	// answer returns a report, or why there is none: 400, unless the error is of reject. By is who
	// asks, for the log and for events.
	answer func(r *http.Request, by string) (report any, err error)
}

// protect returns the handler of an endpoint, for those who have the right.
func (g *guard) protect(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, err := g.admit(w.Header(), r, &e)
		if err != nil {
			writeJSON(w, nil, err)
			return
		}
		report, err := e.answer(r, by)
		writeJSON(w, report, err)
	})
}

// admit returns who asks, or why there is no answer.
func (g *guard) admit(header http.Header, r *http.Request, e *endpoint) (by string, err error) {
	if err := local(r); err != nil {
		return "", err
	}
	if err := g.origins.Check(r); err != nil {
		return "", reject(http.StatusForbidden, "%v: changes are for programs and for the page of this listener, not for pages of other origins", err)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if _, ok := e.methods[method]; !ok {
		header.Set("Allow", allowed(e.methods))
		return "", reject(http.StatusMethodNotAllowed, "method %s: must be %s", r.Method, e.must)
	}
	return r.RemoteAddr, nil
}

// allowed lists methods for the header Allow.
func allowed(methods map[string]access.Right) string {
	var all []string
	for method := range methods {
		all = append(all, method)
		if method == http.MethodGet {
			all = append(all, http.MethodHead)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// A requestError is an answer other than 200 and 400.
type requestError struct {
	code    int
	message string
}

func (e requestError) Error() string { return e.message }

func reject(code int, format string, args ...any) error {
	return requestError{code, fmt.Sprintf(format, args...)}
}

// local returns an error if r does not come straight from this machine.
func local(r *http.Request) error {
	own, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, unix := own.(*net.UnixAddr); !unix {
		if own == nil || !isLoopback(own.String()) || !isLoopback(r.RemoteAddr) {
			return reject(http.StatusForbidden, "counters are for this machine only: ask 127.0.0.1 there, or through kubectl port-forward")
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"} {
		if r.Header.Get(name) != "" {
			return reject(http.StatusForbidden, "counters are for this machine only, not for what a proxy forwards (header %s)", name)
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); !strings.EqualFold(host, "localhost") && (err != nil || !ip.Unmap().IsLoopback()) {
		return reject(http.StatusForbidden, "host %.100q: must be localhost or a loopback address", r.Host)
	}
	return nil
}

// isLoopback reports whether addr, an IP address and a port, is loopback.
func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// readQuery reads a query of these parameters, each given once at most.
func readQuery(query string, parameters ...string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the query does not parse: %w", err)
	}
	for name, given := range values {
		switch {
		case !slices.Contains(parameters, name):
			return nil, fmt.Errorf("unknown parameter %.100q (allowed: %s)", name, strings.Join(parameters, ", "))
		case len(given) > 1:
			return nil, fmt.Errorf("parameter %q is given %d times: one %s is asked for at a time", name, len(given), name)
		}
	}
	return values, nil
}
