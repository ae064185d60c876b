package builtin

import (
	"errors"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// People try the port of gRPC with curl or a browser, and probes with HTTP/1. They get an answer that they can
// read, so the server says nothing before the client does: SETTINGS would be what they read instead. It costs
// nobody time, since each client of HTTP/2 sends its preface at once (RFC 9113, 3.4).

// errHTTP1 is why the connection of such a client is closed.
var errHTTP1 = errors.New("the client speaks HTTP/1, and this port gRPC over HTTP/2")

// longestMethod is the longest method of HTTP/1 that is looked for.
const longestMethod = 20

// speaksHTTP1 reports whether what a client sends first is the beginning of a request of HTTP/1, as far as has
// come. It is undecided while that may also be the preface of HTTP/2.
func speaksHTTP1(first []byte) (yes, undecided bool) {
	if n := min(len(first), len(h2.Preface)); string(first[:n]) == h2.Preface[:n] {
		return false, n < len("PRI ")
	}
	for i, b := range first {
		switch {
		case b == ' ' && i > 0: // a path follows, *, or the address of a proxy's request
			rest := first[i+1:]
			return len(rest) > 0 && strings.IndexByte("/*h", rest[0]) >= 0, len(rest) == 0
		case b < 'A' || b > 'Z' || i == longestMethod:
			return false, false
		}
	}
	return false, true
}

// mostLingerBytes is how many bytes are read and thrown away of what a client still sends: closing a socket with
// unread bytes would throw away what was written last.
const mostLingerBytes = 256 << 10

// countEnded counts and logs that a connection is ended because of what its client did.
func countEnded(count prometheus.Counter, rare *zap.Logger, conn net.Conn, why error) {
	count.Inc()
	rare.Warn("grpc connection closed; more within ten seconds are only counted",
		zap.Stringer("peer", conn.RemoteAddr()), zap.Error(why))
}
