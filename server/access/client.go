package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// Client is the other end of a connection, worked out once for each connection. A nil Client may
// ask for nothing (fail closed).
type Client struct {
	grant
	// names are those in its certificate, quoted and bounded.
	names string
}

// May reports whether c may ask for a domain. It does not allocate.
func (c *Client) May(domain []byte) bool {
	if c == nil {
		return false
	}
	_, named := c.domains[string(domain)]
	return c.any || named
}

// MayAny reports whether c may ask for at least one domain.
func (c *Client) MayAny() bool { return c != nil && (c.any || len(c.domains) > 0) }

// DeniedError is the error of a request for a domain that its client may not ask for.
type DeniedError struct {
	client *Client
	domain string // quoted and bounded
}

// Denied returns the error of a client's request for a domain.
func Denied(c *Client, domain []byte) *DeniedError {
	return &DeniedError{c, shortened(fmt.Sprintf("%q", domain), 120)}
}

// DeniedEverything returns the error of a client that may ask for no domain.
func DeniedEverything(c *Client) *DeniedError { return &DeniedError{client: c} }

// Error says what the client may not ask for, and names its certificate.
func (e *DeniedError) Error() string {
	if e.client == nil {
		return "no client certificate: --grpc-allow grants no domain"
	}
	if e.domain == "" {
		return fmt.Sprintf("the client certificate (%s) may ask for no domain: --grpc-allow grants it none", e.client.names)
	}
	return fmt.Sprintf("the client certificate (%s) may not ask for domain %s: --grpc-allow does not grant it", e.client.names, e.domain)
}

// Fields returns the client and the domain for the log.
func (e *DeniedError) Fields() []zap.Field {
	names := "none"
	if e.client != nil {
		names = e.client.names
	}
	return []zap.Field{zap.String("certificate", names), zap.String("domain", e.domain)}
}

// Credentials returns the server's side of connections: secure, or plain text if that is nil. If allow is not
// nil, a handshake works out what the client may ask for, so that calls need not; see [ClientIn].
func Credentials(secure *TLS, allow *AllowList) (credentials.TransportCredentials, error) {
	switch {
	case allow != nil && !secure.ChecksClients():
		return nil, errors.New("clients without certificates cannot be told apart: an allow-list needs TLS with authorities")
	case allow != nil:
		return identifying{secure, allow}, nil
	case secure != nil:
		return secure, nil
	}
	return insecure.NewCredentials(), nil
}

// clientIdentity is the result of a connection's handshake.
type clientIdentity struct {
	credentials.TLSInfo
	client *Client
}

// identifying are credentials whose handshakes work out what the client may ask for.
type identifying struct {
	*TLS
	allow *AllowList
}

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
	return secure, clientIdentity{found, i.allow.Client(found.State.PeerCertificates[0])}, nil
}

func (i identifying) Clone() credentials.TransportCredentials { return i }

// ClientIn returns the client that a handshake has identified. It is nil, and may ask for nothing, if the
// handshake identified nobody.
func ClientIn(info credentials.AuthInfo) *Client {
	i, _ := info.(clientIdentity)
	return i.client
}

// ClientOf returns the client that sends the request of a context, as [ClientIn] does.
func ClientOf(ctx context.Context) *Client {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return ClientIn(p.AuthInfo)
}

// shortened bounds what an error repeats of a request or of a certificate.
func shortened(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
