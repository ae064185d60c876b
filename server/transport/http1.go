package transport

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// maxMethodLength is the length of the longest HTTP/1 method that is recognized.
const maxMethodLength = 20

// SpeaksHTTP1 reports whether the client's first bytes are the beginning of an HTTP/1 request. It
// is undecided while they may also be the HTTP/2 preface.
func SpeaksHTTP1(first []byte) (yes, undecided bool) {
	if n := min(len(first), len(h2.Preface)); string(first[:n]) == h2.Preface[:n] {
		return false, n < len("PRI ") // not a method of HTTP/1
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
