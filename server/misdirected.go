package server

import (
	"net"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// httpPeer is the address of an HTTP client, as in http.Request.RemoteAddr.
type httpPeer string

var _ net.Addr = httpPeer("")

// Network implements [net.Addr].
func (httpPeer) Network() string { return "tcp" }

// String implements [net.Addr].
func (p httpPeer) String() string { return string(p) }

// isGRPC reports whether r is gRPC sent to an HTTP/1 listener. Most clients send the HTTP/2
// preface, which net/http parses as a request with the method PRI.
func isGRPC(r *http.Request) bool {
	return r.Method == "PRI" && r.ProtoMajor == 2 ||
		strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
}

// rejectGRPC returns a handler that answers gRPC requests with an error that names the right port,
// and logs them. Other requests are handled by next.
func rejectGRPC(listener string, h *answer.Handler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			next.ServeHTTP(w, r)
			return
		}
		h.Metrics.Rejected.GRPCOnHTTP.Inc()
		h.Metrics.ClientErrors.GRPCOnHTTP.Report(h.Rare, httpPeer(r.RemoteAddr), zap.String("listener", listener))
		code := http.StatusUnsupportedMediaType
		if r.ProtoMajor == 2 {
			code = http.StatusHTTPVersionNotSupported
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "This port serves HTTP/1. gRPC is served at --grpc-addr, by default port 8081.", code)
	})
}
