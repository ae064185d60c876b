package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// client is who is at the other end of a connection, worked out once for each. A
// nil one may ask for nothing.
type client struct {
	grant
	// names are those in its certificate, quoted and bounded.
	names string
}

// may reports whether c may ask for a domain. It does not allocate.
func (c *client) may(domain []byte) bool {
	if c == nil {
		return false
	}
	_, named := c.domains[string(domain)]
	return c.any || named
}

// deniedError is the error of a request for a domain that its client may not ask
// for.
type deniedError struct {
	client *client
	domain string // quoted and bounded
}

func denied(c *client, domain []byte) *deniedError {
	return &deniedError{c, shortened(fmt.Sprintf("%q", domain), 120)}
}

func (e *deniedError) Error() string {
	if e.client == nil {
		return "no client certificate: --grpc-allow grants no domain"
	}
	return fmt.Sprintf("the client certificate (%s) may not ask for domain %s: --grpc-allow does not grant it", e.client.names, e.domain)
}

// clientIdentity is what the handshake of a connection has found.
type clientIdentity struct {
	credentials.TLSInfo
	client *client
}

// identifying are credentials whose handshakes look at what the client may ask
// for, so that calls need not.
type identifying struct {
	*TLS
	allow *AllowList
}

// ServerHandshake is for grpc.
func (i identifying) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := i.TLS.ServerHandshake(conn)
	if err != nil {
		return secure, info, err
	}
	found, ok := info.(credentials.TLSInfo)
	if !ok || len(found.State.PeerCertificates) == 0 {
		// It cannot be: the certificate is required.
		return nil, nil, errors.Join(errors.New("no client certificate after the handshake"), secure.Close())
	}
	return secure, clientIdentity{found, i.allow.client(found.State.PeerCertificates[0])}, nil
}

// Clone is for grpc.
func (i identifying) Clone() credentials.TransportCredentials { return i }

// withClient returns a context of a request that c sends, for what comes not over
// gRPC.
func withClient(ctx context.Context, c *client) context.Context {
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: clientIdentity{client: c}})
}

// clientOf returns who sends the request of a context, nil if nobody has looked.
func clientOf(ctx context.Context) *client {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	i, _ := p.AuthInfo.(clientIdentity)
	return i.client
}

// rareLogger returns a logger that passes on each message once in ten seconds: what
// a client causes once, it can cause any number of times.
func rareLogger(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, 10*time.Second, 1, 0)
	}))
}
