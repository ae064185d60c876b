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

// Client is the client of a connection. It is determined once per connection. A nil Client may
// request nothing (fail closed).
type Client struct {
	grant
	// names contains the names in the certificate, quoted and truncated.
	names string
}

// CanAccess reports whether c may request a domain. It does not allocate.
func (c *Client) CanAccess(domain []byte) bool {
	if c == nil {
		return false
	}
	_, named := c.domains[string(domain)]
	return c.anyDomain || named
}

// CanAccessAny reports whether c may request at least one domain.
func (c *Client) CanAccessAny() bool { return c != nil && (c.anyDomain || len(c.domains) > 0) }

// DeniedError is the error of a request for a domain that its client may not request.
type DeniedError struct {
	client *Client
	domain string // quoted and truncated
}

// Denied returns the error of a client's request for the given domain.
func Denied(c *Client, domain []byte) *DeniedError {
	const shown = 120 // cut before quoting as well, since a domain can have megabytes
	return &DeniedError{c, truncate(fmt.Sprintf("%q", domain[:min(len(domain), shown)]), shown)}
}

// DeniedEverything returns the error of a client that may request no domain.
func DeniedEverything(c *Client) *DeniedError { return &DeniedError{client: c} }

// Error names the certificate and the domain.
func (e *DeniedError) Error() string {
	if e.client == nil {
		return "no client certificate: --grpc-allow grants no domain"
	}
	if e.domain == "" {
		return fmt.Sprintf("the client certificate (%s) may not request any domain: --grpc-allow grants it none",
			e.client.names)
	}
	return fmt.Sprintf("the client certificate (%s) may not request domain %s: --grpc-allow does not grant it",
		e.client.names, e.domain)
}

// Fields returns log fields with the certificate and the domain.
func (e *DeniedError) Fields() []zap.Field {
	names := "none"
	if e.client != nil {
		names = e.client.names
	}
	return []zap.Field{zap.String("certificate", names), zap.String("domain", e.domain)}
}

// Credentials returns the credentials of a server: secure, or plain text if secure is nil. If allow
// is not nil, each handshake determines the domains that the client may request; see
// [ClientFromAuthInfo].
func Credentials(secure *TLS, allow *AllowList) (credentials.TransportCredentials, error) {
	switch {
	case allow != nil && !secure.ChecksClients():
		return nil, errors.New("an allow list identifies clients by their certificates: it needs TLS with authorities")
	case allow != nil:
		return identifyingCredentials{secure, allow}, nil
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

// identifyingCredentials determine in the handshake which domains the client may request.
type identifyingCredentials struct {
	*TLS
	allow *AllowList
}

func (i identifyingCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := i.TLS.ServerHandshake(conn)
	if err != nil {
		return secure, info, err
	}
	found, ok := info.(credentials.TLSInfo)
	if !ok || len(found.State.PeerCertificates) == 0 {
		// This cannot happen: TLS requires a certificate. The check avoids a panic below.
		return nil, nil, errors.Join(errors.New("no client certificate after the handshake"), secure.Close())
	}
	return secure, clientIdentity{found, i.allow.Client(found.State.PeerCertificates[0])}, nil
}

func (i identifyingCredentials) Clone() credentials.TransportCredentials { return i }

// ClientFromAuthInfo returns the client that a handshake has identified, or nil, which may request
// nothing.
func ClientFromAuthInfo(info credentials.AuthInfo) *Client {
	i, _ := info.(clientIdentity)
	return i.client
}

// ClientFromContext is [ClientFromAuthInfo] for the request of a context.
func ClientFromContext(ctx context.Context) *Client {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return ClientFromAuthInfo(p.AuthInfo)
}

// truncate shortens a part of a request or certificate for an error.
func truncate(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes], "") + "..."
}
