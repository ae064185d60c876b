package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// countersHandler serves /counters on the debug listener. GET looks up the counters of a
// descriptor, DELETE resets them.
//
// A reset lifts limits, and counters tell of clients. So it answers only to this machine: both ends
// of the connection must be loopback or a unix socket. `kubectl port-forward` is loopback; what a
// sidecar proxy forwards to the pod's address is not. Two checks keep pages in a browser from
// getting around this. The Host must be loopback, which a name that was rebound by DNS is not. And
// a DELETE from another origin is rejected.
type countersHandler struct {
	*answer.Handler
	origins *http.CrossOriginProtection
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

func (h *countersHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report, err := h.answer(w, r)
	writeJSON(w, report, err)
}

func (h *countersHandler) answer(w http.ResponseWriter, r *http.Request) (*answer.CounterReport, error) {
	if err := local(r); err != nil {
		return nil, err
	}
	if err := h.origins.Check(r); err != nil {
		return nil, reject(http.StatusForbidden, "%v: counters are reset by programs, not by pages of other origins", err)
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete:
	default:
		w.Header().Set("Allow", "GET, HEAD, DELETE")
		return nil, reject(http.StatusMethodNotAllowed, "method %s: must be GET to look up or DELETE to reset", r.Method)
	}
	q, d, err := parseCounterQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := h.Service.CheckEntries(d.Entries); err != nil {
		return nil, err
	}
	now, _ := h.Clock.Now()
	reset := r.Method == http.MethodDelete
	report, err := h.Service.Counters(r.Context(), now, q.Domain, q.Descriptor, d, reset)
	switch {
	case err != nil:
		return nil, reject(http.StatusServiceUnavailable, "%v", err)
	case !reset:
		return report, nil
	case len(report.Counters) == 0:
		return nil, reject(http.StatusNotFound, "there is no counter to reset: %s", report.Reason)
	}
	for _, c := range report.Counters {
		h.Metrics.CounterResets.Inc()
		h.Logger.Info("counter reset", zap.String("domain", q.Domain), zap.String("rule", report.Rule),
			zap.String("limit", c.Limit), zap.Uint64("used", c.Forgotten), zap.String("by", r.RemoteAddr))
	}
	return report, nil
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

// counterParameters are the parameters of a query.
var counterParameters = []string{"domain", "descriptor", "limit"}

// parseCounterQuery reads a query and the descriptor that it names.
func parseCounterQuery(query string) (q CounterQuery, d descriptors.Descriptor, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, d, fmt.Errorf("the query does not parse: %w", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(counterParameters, name):
			return q, d, fmt.Errorf("unknown parameter %.100q (allowed: %s)", name, strings.Join(counterParameters, ", "))
		case len(all) > 1:
			return q, d, fmt.Errorf("parameter %q is given %d times: one descriptor is asked for at a time", name, len(all))
		}
	}
	q = CounterQuery{Domain: values.Get("domain"), Descriptor: values.Get("descriptor"), Limit: values.Get("limit")}
	switch {
	case q.Domain == "":
		return q, d, errors.New("parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2")
	case !values.Has("descriptor"):
		return q, d, errors.New("parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2")
	}
	if d.Entries, err = descriptors.ParseEntries(q.Descriptor); err == nil && q.Limit != "" {
		d.HasOverride = true
		d.Override, err = descriptors.ParseOverride(q.Limit)
	}
	return q, d, err
}
