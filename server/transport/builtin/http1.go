package builtin

import (
	"errors"
	"strings"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// People try the gRPC port with curl or a browser, and probes use HTTP/1. They get a readable
// answer. For that, the server must not send its SETTINGS first. This causes no delay, because
// HTTP/2 clients send their preface at once (RFC 9113, 3.4).

var errHTTP1 = errors.New("the client speaks HTTP/1, but this port serves gRPC over HTTP/2")

// maxMethodLength is the length of the longest HTTP/1 method that is recognized.
const maxMethodLength = 20

// speaksHTTP1 reports whether the client's first bytes are the beginning of an HTTP/1 request. It
// is undecided while they may also be the HTTP/2 preface.
func speaksHTTP1(first []byte) (yes, undecided bool) {
	if n := min(len(first), len(h2.Preface)); string(first[:n]) == h2.Preface[:n] {
		return false, n < len("PRI ")
	}
	for i, b := range first {
		switch {
		case b == ' ' && i > 0: // a path follows, or *, or the URL of a request to a proxy
			rest := first[i+1:]
			return len(rest) > 0 && strings.IndexByte("/*h", rest[0]) >= 0, len(rest) == 0
		case b < 'A' || b > 'Z' || i == maxMethodLength:
			return false, false
		}
	}
	return false, true
}
