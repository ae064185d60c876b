package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/telemetry"
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

// hint is what such a client gets.
func (o *Options) hint() []byte {
	text := "This port speaks gRPC over HTTP/2, and you speak HTTP/1. Try grpcurl, sluice call, or curl --http2-prior-knowledge.\n"
	switch {
	case o.JSONAddr != "":
		text += fmt.Sprintf("/json is over TLS on %s, as --json-addr says.\n", o.JSONAddr)
	case o.JSON && o.HTTPAddr != "":
		text += fmt.Sprintf("/json is on %s, as --http-addr says.\n", o.HTTPAddr)
	}
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
}

// greeting are the credentials of grpc-go's server. They wait for the client's first bytes after the
// handshake, and answer one that speaks HTTP/1.
type greeting struct {
	credentials.TransportCredentials
	hint   []byte
	ended  *telemetry.Ended
	logger *zap.Logger // see rareLogger
}

// ServerHandshake implements [credentials.TransportCredentials]. grpc-go has set a deadline.
func (g greeting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	first := make([]byte, 0, longestMethod+2)
	for {
		n, err := conn.Read(first[len(first):cap(first)])
		if first = first[:len(first)+n]; err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
		yes, undecided := speaksHTTP1(first)
		switch {
		case undecided:
		case yes:
			g.answer(conn, raw)
			return nil, nil, errors.Join(errHTTP1, conn.Close())
		default:
			return greeted{conn, bytes.NewReader(first)}, info, nil
		}
	}
}

// answer tells a client of HTTP/1 what it has found, and reads a little of what still comes: closing a socket
// with unread bytes would throw the answer away.
func (g greeting) answer(conn, raw net.Conn) {
	endedBecause(g.ended, errHTTP1).Inc()
	logEnded(g.logger, raw, errHTTP1)
	if _, err := conn.Write(g.hint); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = raw.SetReadDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // bounds a wait
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, mostLingered))
	}
}

// Clone implements [credentials.TransportCredentials].
func (g greeting) Clone() credentials.TransportCredentials {
	g.TransportCredentials = g.TransportCredentials.Clone()
	return g
}

// greeted is a connection whose first bytes were read.
type greeted struct {
	net.Conn
	first *bytes.Reader
}

// Read implements [net.Conn].
func (g greeted) Read(p []byte) (int, error) {
	if g.first.Len() > 0 {
		return g.first.Read(p)
	}
	return g.Conn.Read(p)
}

// withoutALPN reports whether a handshake failed because the client named no protocol. grpc-go's credentials
// have no other word for it.
func withoutALPN(err error) bool {
	return strings.Contains(err.Error(), "missing selected ALPN property")
}
