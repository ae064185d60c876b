package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// A guard says who may ask what of the debug listener. To read and to write are two rights.
//
// A change lifts limits, and a look tells of clients. This machine has both rights: both ends of the
// connection must be loopback or a unix socket. `kubectl port-forward` is loopback; what a sidecar
// proxy forwards to the pod's address is not. Two checks keep pages in a browser from getting around
// this. The Host must be loopback, which a name that was rebound by DNS is not. And a change that a
// page of another origin asks for is rejected.
//
// Others have the right of the token that they send, or else of their certificate.
type guard struct {
	rights  Rights
	origins *http.CrossOriginProtection
	denied  *telemetry.DebugDenied
	rare    *zap.Logger
}

// Rights say who may ask the debug listener, beside its own machine. Without any, nobody may ask for what tells
// of clients, and everybody for the rest.
type Rights struct {
	// Tokens are sent as bearer tokens, or by browsers as passwords. Nil: none.
	Tokens *access.Tokens
	// Clients are told by their certificates, which TLS has checked; see [access.ParseRights]. Nil: none.
	Clients *access.AllowList
}

func newGuard(h *answer.Handler, rights Rights) *guard {
	return &guard{rights, http.NewCrossOriginProtection(), &h.Metrics.DebugDenied, h.Rare}
}

// Given reports whether others than this machine have rights.
func (r *Rights) Given() bool { return r.Tokens != nil || r.Clients != nil }

// A caller is who asks. By is for the log and for events.
type caller struct {
	by    string
	right access.Right
}

// who returns who asks, or why that is nobody who may.
func (g *guard) who(header http.Header, r *http.Request) (caller, error) {
	if secret, ok := sentToken(r); ok && g.rights.Tokens != nil {
		name, right := g.rights.Tokens.Find(secret)
		if right == 0 {
			g.deny(r, g.denied.UnknownToken, "the token is unknown")
			return caller{}, g.unauthorized(header, r, "the token is not one of --debug-token-file")
		}
		return caller{"token " + name + " from " + r.RemoteAddr, right}, nil
	}
	if g.rights.Clients != nil && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		client := g.rights.Clients.Client(r.TLS.PeerCertificates[0])
		if client.Right() == 0 {
			g.deny(r, g.denied.NotGranted, "the certificate has no right")
			return caller{}, reject(http.StatusForbidden, "the client certificate (%s) has no right: --debug-allow does not grant it one", client.Names())
		}
		return caller{"certificate " + client.Names() + " from " + r.RemoteAddr, client.Right()}, nil
	}
	err := web.Local(r)
	switch {
	case err == nil:
		return caller{r.RemoteAddr, access.Write}, nil
	case g.rights.Tokens != nil:
		g.deny(r, g.denied.NoCredentials, "it has no token")
		return caller{}, g.unauthorized(header, r, "a token is needed, as Authorization: Bearer TOKEN, or in browsers as the password")
	case g.rights.Clients != nil:
		g.deny(r, g.denied.NoCredentials, "it has no certificate")
		return caller{}, reject(http.StatusForbidden, "a client certificate that --debug-allow names is needed")
	}
	return caller{}, reject(http.StatusForbidden, "%v", err)
}

// sentToken returns what r sends as a token. Browsers send it as a password, whatever the user's name.
func sentToken(r *http.Request) (token string, ok bool) {
	const bearer = "Bearer "
	if text := r.Header.Get("Authorization"); len(text) > len(bearer) && strings.EqualFold(text[:len(bearer)], bearer) {
		return strings.TrimSpace(text[len(bearer):]), true
	}
	_, token, ok = r.BasicAuth()
	return token, ok
}

func (g *guard) unauthorized(header http.Header, r *http.Request, why string) error {
	header.Add("WWW-Authenticate", `Bearer realm="sluice"`)
	if acceptsHTML(r) {
		header.Add("WWW-Authenticate", `Basic realm="sluice: a token as the password", charset="UTF-8"`)
	}
	return reject(http.StatusUnauthorized, "%s", why)
}

// deny counts and logs a request that was denied.
func (g *guard) deny(r *http.Request, reason prometheus.Counter, why string) {
	reason.Inc()
	g.rare.Warn("request to the debug listener denied; more within ten seconds are only counted", zap.String("why", why), zap.String("from", r.RemoteAddr))
}

// look returns the handler of a page for callers who may read, or for everybody if no rights are given.
func (g *guard) look(page http.Handler) http.Handler {
	if !g.rights.Given() {
		return page
	}
	return answering(page, func(w http.ResponseWriter, r *http.Request) error {
		_, err := g.who(w.Header(), r)
		return err
	})
}

// noOtherSite returns the handler of a page that web pages of other sites cannot read. Rights keep them out by
// themselves.
func (g *guard) noOtherSite(page http.Handler) http.Handler {
	if g.rights.Given() {
		return page
	}
	return answering(page, func(_ http.ResponseWriter, r *http.Request) error { return web.FromOtherSite(r) })
}

// answering returns the handler of a page for requests that check admits.
func answering(page http.Handler, check func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(w, r); err != nil {
			http.Error(w, err.Error(), statusCode(err, http.StatusForbidden))
			return
		}
		page.ServeHTTP(w, r)
	})
}

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
	asks, err := g.who(header, r)
	if err != nil {
		return "", err
	}
	if err := g.origins.Check(r); err != nil {
		return "", reject(http.StatusForbidden, "%v: changes are for programs and for the page of this listener, not for pages of other origins", err)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	needs, ok := e.methods[method]
	switch {
	case !ok:
		header.Set("Allow", allowed(e.methods))
		return "", reject(http.StatusMethodNotAllowed, "method %s: must be %s", r.Method, e.must)
	case asks.right < needs:
		g.deny(r, g.denied.NotGranted, "it may only read")
		return "", reject(http.StatusForbidden, "%s may only read: this needs the right to write", asks.by)
	}
	return asks.by, nil
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

// statusCode returns the status of an answer: that of a [requestError], or else the given one.
func statusCode(err error, other int) int {
	if e, ok := errors.AsType[requestError](err); ok {
		return e.code
	}
	return other
}

func reject(code int, format string, args ...any) error {
	return requestError{code, fmt.Sprintf(format, args...)}
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
