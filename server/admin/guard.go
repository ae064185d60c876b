package admin

import (
	"encoding/json"
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

// A guard authorizes requests to the debug listener, by two rights: read and write.
//
// Changes lift limits, and the state contains data of clients. Requests from this machine have both
// rights: both ends of their connections are loopback addresses or a Unix socket. `kubectl
// port-forward` uses loopback, but connections that a sidecar proxy forwards to the pod's address
// do not. Two checks prevent web pages from using a browser on this machine: the Host must be a
// loopback name, which excludes DNS rebinding, and changes that a page of another origin requests
// are rejected.
//
// Other requests have the right of their token or, without a token, of their certificate.
type guard struct {
	rights  Rights
	origins *http.CrossOriginProtection
	denied  *telemetry.DebugDenied
	rare    *zap.Logger
}

// Rights configure the rights of requests from other machines. Without any, other machines have no
// access to data of clients, and full access to the rest.
type Rights struct {
	// Tokens are sent as bearer tokens, or by browsers as passwords. Optional.
	Tokens *access.Tokens
	// Clients contains the rights of certificates that TLS has verified; see [access.ParseRights].
	// Optional.
	Clients *access.AllowList
}

func newGuard(h *answer.Handler, rights Rights) *guard {
	return &guard{rights, http.NewCrossOriginProtection(), &h.Metrics.DebugDenied, h.Rare}
}

// Configured reports whether requests from other machines can have rights.
func (r *Rights) Configured() bool { return r.Tokens != nil || r.Clients != nil }

// A caller is the origin of a request. The name is used in logs and events.
type caller struct {
	name  string
	right access.Right
}

// authenticate returns the caller, or an error if it has no right.
func (g *guard) authenticate(header http.Header, r *http.Request) (caller, error) {
	if secret, ok := requestToken(r); ok && g.rights.Tokens != nil {
		name, right := g.rights.Tokens.Find(secret)
		if right == 0 {
			g.deny(r, g.denied.UnknownToken, "unknown token")
			return caller{}, g.unauthorized(header, r, "the token is not one of --debug-token-file")
		}
		return caller{"token " + name + " from " + r.RemoteAddr, right}, nil
	}
	if g.rights.Clients != nil && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		client := g.rights.Clients.Client(r.TLS.PeerCertificates[0])
		if client.Right() == 0 {
			g.deny(r, g.denied.NotGranted, "the certificate has no right")
			return caller{}, newRequestError(http.StatusForbidden,
				"the client certificate (%s) has no right: --debug-allow does not grant it one", client.Names())
		}
		return caller{"certificate " + client.Names() + " from " + r.RemoteAddr, client.Right()}, nil
	}
	err := web.CheckLocal(r)
	switch {
	case err == nil:
		return caller{r.RemoteAddr, access.Write}, nil
	case g.rights.Tokens != nil:
		g.deny(r, g.denied.NoCredentials, "no token")
		return caller{}, g.unauthorized(header, r,
			"a token is required, as Authorization: Bearer TOKEN, or in browsers as the password")
	case g.rights.Clients != nil:
		g.deny(r, g.denied.NoCredentials, "no certificate")
		return caller{}, newRequestError(http.StatusForbidden,
			"a client certificate that --debug-allow lists is required")
	}
	return caller{}, newRequestError(http.StatusForbidden, "%v", err)
}

// requestToken returns the token of r. Browsers send it as a password with any user name.
func requestToken(r *http.Request) (token string, ok bool) {
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
	return newRequestError(http.StatusUnauthorized, "%s", why)
}

// deny counts and logs a request that was denied.
func (g *guard) deny(r *http.Request, reason prometheus.Counter, why string) {
	reason.Inc()
	g.rare.Warn("request to the debug listener denied; more within ten seconds are only counted",
		zap.String("why", why), zap.String("from", r.RemoteAddr))
}

// protectPage restricts a page to callers that may read, if rights are configured.
func (g *guard) protectPage(page http.Handler) http.Handler {
	if !g.rights.Configured() {
		return page
	}
	return withCheck(page, func(w http.ResponseWriter, r *http.Request) error {
		_, err := g.authenticate(w.Header(), r)
		return err
	})
}

// rejectRebinding rejects requests for a page by DNS rebinding, unless rights are configured, since
// such requests have no credentials.
func (g *guard) rejectRebinding(page http.Handler) http.Handler {
	if g.rights.Configured() {
		return page
	}
	return withCheck(page, func(_ http.ResponseWriter, r *http.Request) error { return web.CheckHost(r) })
}

// rejectCrossSite rejects requests by web pages of other sites. With rights, too, such a request
// from a browser on this machine would be authorized, and browsers add passwords that they know.
func rejectCrossSite(h http.Handler) http.Handler {
	return withCheck(h, func(_ http.ResponseWriter, r *http.Request) error { return web.CheckCrossSite(r) })
}

// withCheck returns a handler that calls check, and serves page if there is no error.
func withCheck(page http.Handler, check func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(w, r); err != nil {
			http.Error(w, err.Error(), statusCode(err, http.StatusForbidden))
			return
		}
		page.ServeHTTP(w, r)
	})
}

// An endpoint returns JSON.
type endpoint struct {
	// methods contains the allowed methods and the rights that they require. GET includes HEAD.
	methods map[string]access.Right
	// answer returns a report or an error. An error that is not a requestError results in status
	// 400. by is the name of the caller.
	answer func(r *http.Request, by string) (report any, err error)
}

// protectEndpoint returns the handler of an endpoint for authorized callers.
func (g *guard) protectEndpoint(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, err := g.authorize(w.Header(), r, &e)
		if err != nil {
			writeJSON(w, r, nil, err)
			return
		}
		report, err := e.answer(r, by)
		writeJSON(w, r, report, err)
	})
}

// authorize returns the name of the caller, or an error if the request is not allowed.
func (g *guard) authorize(header http.Header, r *http.Request, e *endpoint) (by string, err error) {
	from, err := g.authenticate(header, r)
	if err != nil {
		return "", err
	}
	if err := g.origins.Check(r); err != nil {
		return "", newRequestError(http.StatusForbidden, "%v: changes are only allowed from programs and from this listener's own page, not from pages of other origins", err)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	required, ok := e.methods[method]
	switch {
	case !ok:
		allowed := allowHeader(e.methods)
		header.Set("Allow", allowed)
		return "", newRequestError(http.StatusMethodNotAllowed, "method %s is not allowed, only %s", r.Method, allowed)
	case from.right < required:
		g.deny(r, g.denied.NotGranted, "the right to write is missing")
		return "", newRequestError(http.StatusForbidden, "%s may only read: this requires the right to write",
			from.name)
	}
	return from.name, nil
}

// allowHeader returns the value of the header Allow.
func allowHeader(methods map[string]access.Right) string {
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

// A requestError is an error with a status code other than 400.
type requestError struct {
	code    int
	message string
}

func (e requestError) Error() string { return e.message }

// statusCode returns the status code of a [requestError], and other for all other errors.
func statusCode(err error, other int) int {
	if e, ok := errors.AsType[requestError](err); ok {
		return e.code
	}
	return other
}

func newRequestError(code int, format string, args ...any) error {
	return requestError{code, fmt.Sprintf(format, args...)}
}

// readQuery parses a query with the given parameters, each of which may occur once.
func readQuery(query string, parameters ...string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the query: %w", err)
	}
	for name, given := range values {
		switch {
		case !slices.Contains(parameters, name):
			return nil, fmt.Errorf("unknown parameter %.100q (allowed: %s)", name, strings.Join(parameters, ", "))
		case len(given) > 1:
			return nil, fmt.Errorf("parameter %q is given %d times: only one %s is allowed", name, len(given), name)
		}
	}
	return values, nil
}

// writeJSON writes a report, or the error if there is one. It is indented unless the client asks for
// application/json, because indentation takes as long as the encoding.
func writeJSON(w http.ResponseWriter, r *http.Request, report any, err error) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err != nil {
		w.WriteHeader(statusCode(err, http.StatusBadRequest))
		report = struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	enc := json.NewEncoder(&web.PacedWriter{ResponseWriter: w})
	if r.Header.Get("Accept") != "application/json" {
		enc.SetIndent("", "  ")
	}
	enc.SetEscapeHTML(false)
	_ = enc.Encode(report) // an error means that the client has disconnected
}
