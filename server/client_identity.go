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

// client is the other end of a connection, worked out once for each connection. A nil client may
// ask for nothing (fail closed).
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

// deniedError is the error of a request for a domain that its client may not ask for.
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

// clientIdentity is the result of a connection's handshake.
type clientIdentity struct {
	credentials.TLSInfo
	client *client
}

// identifying are credentials whose handshakes work out what the client may ask for, so that
// calls need not.
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
		// This cannot happen, since TLS requires the certificate. Without the check, the
		// index below would panic.
		return nil, nil, errors.Join(errors.New("no client certificate after the handshake"), secure.Close())
	}
	return secure, clientIdentity{found, i.allow.client(found.State.PeerCertificates[0])}, nil
}

// Clone is for grpc.
func (i identifying) Clone() credentials.TransportCredentials { return i }

// withClient returns the context of a request that c sends other than over gRPC.
func withClient(ctx context.Context, c *client) context.Context {
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: clientIdentity{client: c}})
}

// clientOf returns the client that sends the request of a context. It is nil, and may ask for
// nothing, if no handshake has identified it.
func clientOf(ctx context.Context) *client {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	i, _ := p.AuthInfo.(clientIdentity)
	return i.client
}

// rareLogger returns a logger that passes on each message once in ten seconds. Without it, a
// client could fill the log with what it causes.
func rareLogger(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, 10*time.Second, 1, 0)
	}))
}
