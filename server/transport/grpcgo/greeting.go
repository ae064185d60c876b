package grpcgo

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// greeting are the credentials of grpc-go's server. They wait for the client's first bytes after the
// handshake, and answer one that speaks HTTP/1.
type greeting struct {
	credentials.TransportCredentials
	config *transport.Config
}

// ServerHandshake implements [credentials.TransportCredentials]. grpc-go has set a deadline.
func (g greeting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	first := make([]byte, 0, transport.LongestMethod+2)
	for {
		n, err := conn.Read(first[len(first):cap(first)])
		if first = first[:len(first)+n]; err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
		yes, undecided := transport.SpeaksHTTP1(first)
		switch {
		case undecided:
		case yes:
			g.answer(conn, raw)
			return nil, nil, errors.Join(transport.ErrHTTP1, conn.Close())
		default:
			return greeted{conn, bytes.NewReader(first)}, info, nil
		}
	}
}

// answer tells a client of HTTP/1 what it has found, and reads a little of what still comes: closing a socket
// with unread bytes would throw the answer away.
func (g greeting) answer(conn, raw net.Conn) {
	transport.Ended(g.config.Handler.Metrics.Ended.Protocol, g.config.Handler.Rare, raw, transport.ErrHTTP1)
	if _, err := conn.Write(g.config.Hint); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = raw.SetReadDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // bounds a wait
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, transport.MostLingered))
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
