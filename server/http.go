package server

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxHTTPHead bounds the header of HTTP requests, in bytes.
const maxHTTPHead = 16 << 10

// newHTTPServer returns a server whose timeouts and bounds limit the cost of a client.
func newHTTPServer(h http.Handler, headerBytes int, logger *zap.Logger) *http.Server {
	return &http.Server{
		Handler:           withWriteTimeout(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       web.ReadTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          zap.NewStdLog(logger),
	}
}

// withWriteTimeout bounds the time of each response to [web.WriteTimeout] plus the duration of the
// requested profile. The timeout of [http.Server] would be the same for all pages.
func withWriteTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.SetWriteTimeout(w, web.WriteTimeout+profileDuration(r)) != nil {
			return // the connection is closed
		}
		h.ServeHTTP(w, r)
	})
}

// healthcheck serves /healthcheck.
func healthcheck(healthy func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK") // an error means that the client has disconnected
	})
}

// forbidden returns a handler for a page where it is disabled, or where it would bypass client
// certificates.
func forbidden(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "Forbidden: "+r.URL.Path+" is "+why, http.StatusForbidden)
	})
}

var (
	onlyOverTLS  = forbidden("only served over TLS, at --json-addr")
	jsonDisabled = forbidden("disabled by --no-json")
)

// jsonHandler answers RateLimitRequests in proto3 JSON as envoyproxy/ratelimit does: status 200 or
// 429 with the response in JSON, and 400 for errors. Unlike in envoyproxy/ratelimit, the body of an
// error response describes the error, and a request for a domain that the client may not request
// gets 403. So do requests of web pages of other origins, which could otherwise charge, refund and
// release leases through an operator's browser.
type jsonHandler struct {
	*answer.Handler
	maxBytes int
	bodies   *bodyBudget
}

func newJSONHandler(h *answer.Handler, maxBytes int) jsonHandler {
	return jsonHandler{h, maxBytes, &bodyBudget{}}
}

// jsonTypes contains the accepted content types. The last one is that of curl -d, which the
// documentation of envoyproxy/ratelimit uses.
var jsonTypes = []string{"", "application/json", "application/x-www-form-urlencoded"}

// admitJSON reports whether r is a valid request for /json. If not, it writes the error.
func admitJSON(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method Not Allowed: must be POST", http.StatusMethodNotAllowed)
		return false
	}
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !slices.Contains(jsonTypes, strings.ToLower(strings.TrimSpace(contentType))) {
		http.Error(w, "Unsupported Media Type: must be application/json", http.StatusUnsupportedMediaType)
		return false
	}
	err := http.NewCrossOriginProtection().Check(r)
	if browser := r.Header.Get("Origin") + r.Header.Get("Sec-Fetch-Site"); err == nil && browser != "" {
		err = cmp.Or(web.CheckCrossSite(r), web.CheckHost(r))
	}
	if err != nil {
		http.Error(w, "Forbidden: "+err.Error(), http.StatusForbidden)
	}
	return err == nil
}

func (j jsonHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !admitJSON(w, r) {
		return
	}
	body := j.bodies.open(r)
	defer body.close()
	var err error
	whileReading(r, func() { err = body.read(http.MaxBytesReader(w, r.Body, int64(j.maxBytes)), j.maxBytes) })
	if err != nil {
		rejectBody(w, err)
		return
	}
	x := new(answer.Exchange)
	if x.Request, err = body.decode(); err != nil {
		if errors.Is(err, errTooManyBodies) {
			rejectBody(w, err)
			return
		}
		j.ReportMalformed(httpPeer(r.RemoteAddr))
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if allow := j.Service.Settings().Allow; allow != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		x.Client = allow.Client(r.TLS.PeerCertificates[0])
	}
	task := cpu.FromContext(r.Context())
	err = j.Answer(peer.NewContext(r.Context(), &peer.Peer{Addr: httpPeer(r.RemoteAddr)}), x, func(wait func()) {
		body.count(x.MemoryBytes())
		task.Wait(wait)
		body.count(0)
	})
	if web.SetWriteTimeout(w, web.WriteTimeout) != nil { // the delay of the reply may have exceeded the timeout
		return // the connection has ended
	}
	if err != nil {
		if status.Code(err) == codes.PermissionDenied {
			http.Error(w, "Forbidden: "+err.Error(), http.StatusForbidden)
			return
		}
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	var response rls.RateLimitResponse
	if err := proto.Unmarshal(x.Reply(), &response); err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		j.Logger.Error("failed to decode own reply", zap.Error(err))
		return
	}
	text, err := protojson.Marshal(&response)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		j.Logger.Error("failed to encode own reply as JSON", zap.Error(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if x.OverLimit() {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	body.count(len(text))
	task.Pause()         // the response is written without further work
	_, _ = w.Write(text) // an error means that the client has disconnected
}

// rejectBody writes the error of reading a request body.
func rejectBody(w http.ResponseWriter, err error) {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		w.Header().Set("Connection", "close") // the rest is not read
		http.Error(w, "Request Entity Too Large", http.StatusRequestEntityTooLarge)
	case errors.Is(err, errTooManyBodies):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Service Unavailable: "+err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "Bad Request", http.StatusBadRequest)
	}
}

// servePaths serves the given pages by path, and nothing else.
func servePaths(pages map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// recoverPanics returns a handler that answers with status 500 if h panics. If the response has
// started, it aborts the connection instead, so that the client does not take the partial response
// for a complete one. Without this handler, net/http would log the value of the panic.
func recoverPanics(h http.Handler, panics *telemetry.Panics) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := &response{ResponseWriter: w}
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p) //nolint:forbidigo // let net/http handle it
			default:
				panics.Report(p)
				if response.started {
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http closes the connection
				}
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(response, r)
	})
}

// response records whether a response has started.
type response struct {
	http.ResponseWriter
	started bool
}

func (r *response) WriteHeader(code int) {
	r.started = true
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	r.started = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
