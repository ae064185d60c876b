package server

import (
	"net"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// httpPeer is the address of a client of HTTP, as net/http has it.
type httpPeer string

var _ net.Addr = httpPeer("")

// Network implements [net.Addr].
func (httpPeer) Network() string { return "tcp" }

// String implements [net.Addr].
func (p httpPeer) String() string { return string(p) }

// isGRPC reports whether a client speaks gRPC to a listener of HTTP/1. Most send the preface of HTTP/2, which net/http hands over
// as a request of the method PRI.
func isGRPC(r *http.Request) bool {
	return r.Method == "PRI" && r.ProtoMajor == 2 || strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
}

// withoutGRPC answers gRPC with an error that says where to send it, and reports it. Other requests go to next.
func withoutGRPC(listener string, h *answer.Handler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			next.ServeHTTP(w, r)
			return
		}
		h.Metrics.ClientErrors.GRPCOnHTTP.Report(h.Rare, httpPeer(r.RemoteAddr), zap.String("listener", listener))
		code := http.StatusUnsupportedMediaType
		if r.ProtoMajor == 2 {
			code = http.StatusHTTPVersionNotSupported
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "This port speaks HTTP/1. gRPC is served at port 8081, or at that of --grpc-addr.", code)
	})
}
