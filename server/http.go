package server

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxHTTPHead bounds the header of a request on any listener, in bytes.
const maxHTTPHead = 16 << 10

// newHTTPServer returns a server with bounds on what a client can cost.
func newHTTPServer(h http.Handler, headerBytes int, logger *zap.Logger) *http.Server {
	return &http.Server{
		Handler:           writeWithin(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          zap.NewStdLog(logger),
	}
}

// writeWithin gives each response [web.WriteTime], and a profile as many seconds more as it takes. The deadlines of
// [http.Server] would be the same for both.
func writeWithin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.AllowTime(w, web.WriteTime+profileTime(r)) != nil {
			return // the connection has ended
		}
		h.ServeHTTP(w, r)
	})
}

// publicHandler serves /healthcheck, and json as /json.
func publicHandler(healthy func() bool, json http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK") // a prober that went away
	})
	mux.Handle("/json", json)
	return mux
}

// forbidden answers /json where clients could get around certificates, or where it is switched off.
func forbidden(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Forbidden: /json is "+why, http.StatusForbidden)
	})
}

var (
	jsonOff     = forbidden("answered over TLS only, at --json-addr")
	jsonLeftOut = forbidden("off, by --no-json")
)

// jsonHandler answers a RateLimitRequest in proto3 JSON: 200 or 429 with the reply in JSON, and 400
// for every error, as envoyproxy/ratelimit does. Unlike there, a domain that its client may not ask
// for gets 403, and the body of an error says what is wrong. Web pages of other origins get 403: they could charge,
// refund and end leases through the browser of an operator.
type jsonHandler struct {
	*answer.Handler
	maxBytes int
	bodies   *bodies
}

func newJSONHandler(h *answer.Handler, maxBytes int) jsonHandler {
	return jsonHandler{h, maxBytes, &bodies{}}
}

// jsonTypes are the content types of /json. The last is that of curl -d, which the documentation of
// envoyproxy/ratelimit uses.
var jsonTypes = []string{"", "application/json", "application/x-www-form-urlencoded"}

// admitJSON reports whether /json answers r, and answers itself if not.
func admitJSON(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method Not Allowed: must be POST", http.StatusMethodNotAllowed)
		return false
	}
	sent, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !slices.Contains(jsonTypes, strings.ToLower(strings.TrimSpace(sent))) {
		http.Error(w, "Unsupported Media Type: must be application/json", http.StatusUnsupportedMediaType)
		return false
	}
	err := http.NewCrossOriginProtection().Check(r)
	if browser := r.Header.Get("Origin") + r.Header.Get("Sec-Fetch-Site"); err == nil && browser != "" {
		err = web.FromOtherSite(r)
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
	whileWaiting(r, func() { err = body.read(http.MaxBytesReader(w, r.Body, int64(j.maxBytes)), j.maxBytes) })
	if err != nil {
		rejectBody(w, err)
		return
	}
	var request rls.RateLimitRequest
	if err := protojson.Unmarshal(body.bytes, &request); err != nil {
		j.Malformed(httpPeer(r.RemoteAddr))
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	x := new(answer.Exchange)
	if x.Request, err = proto.Marshal(&request); err != nil {
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if allow := j.Service.Settings().Allow; allow != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		x.Client = allow.Client(r.TLS.PeerCertificates[0])
	}
	err = j.Answer(peer.NewContext(r.Context(), &peer.Peer{Addr: httpPeer(r.RemoteAddr)}), x)
	if web.AllowTime(w, web.WriteTime) != nil { // the reply may have been held for longer
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
		j.Logger.Error("own reply does not decode", zap.Error(err))
		return
	}
	text, err := protojson.Marshal(&response)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		j.Logger.Error("own reply has no JSON", zap.Error(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if x.OverLimit() {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // a client that went away
}

// rejectBody answers a request whose body was not read.
func rejectBody(w http.ResponseWriter, err error) {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		w.Header().Set("Connection", "close") // the rest is not read
		http.Error(w, "Request Entity Too Large", http.StatusRequestEntityTooLarge)
	case errors.Is(err, errBodies):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Service Unavailable: "+err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "Bad Request", http.StatusBadRequest)
	}
}

// metricsHandler serves the metrics at path and nothing else.
func metricsHandler(m *telemetry.Metrics, path string) http.Handler {
	return only(path, newScrapes(m, promhttp.HandlerOpts{EnableOpenMetrics: true}))
}

// only serves h at path and nothing else.
func only(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// recovering answers 500 if h panics, or ends the connection if the response has begun: its client would take what it
// has for all. Without it, net/http would log the value of the panic.
func recovering(h http.Handler, panics *telemetry.Panics) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := &response{ResponseWriter: w}
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p) //nolint:forbidigo // as above
			default:
				panics.Report(p)
				if response.begun {
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http ends the connection
				}
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(response, r)
	})
}

// response records whether a response has begun.
type response struct {
	http.ResponseWriter
	begun bool
}

func (r *response) WriteHeader(code int) {
	r.begun = true
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
