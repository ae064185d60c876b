package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapio"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TLSOptions configure one side of TLS connections.
type TLSOptions struct {
	// Cert is a PEM file of this side's certificate, followed by its chain. Key is a PEM file
	// of its key. A server needs both; a client may have both or neither.
	Cert, Key string
	// CA is a PEM file of the authorities against which the other side's certificate is
	// checked. They replace the system's. Optional: without it a server asks for no
	// certificate, and a client trusts the system's authorities.
	CA string
	// PeerName must be among the DNS names or IP addresses of the other side's certificate.
	// Optional: by default a client expects the host of the address it connects to, and a
	// server accepts each certificate that CA has signed. A server needs CA with it.
	PeerName string
	// PeerOptional lets clients connect to a server without a certificate, though there is CA. Those that they show are
	// checked.
	PeerOptional bool
	// MinVersion is the least version of TLS, tls.VersionTLS12 or above. 0 means
	// tls.VersionTLS12.
	MinVersion uint16
	// Poll is how often [TLS.Run] reads the files. 0 means every second.
	Poll time.Duration
	// Metrics and Logger get changes of the files and handshakes that fail. Optional.
	Metrics *telemetry.TLS
	Logger  *zap.Logger
}

// TLS is one side of TLS connections: credentials for grpc whose certificate, key and authorities
// follow their files while [TLS.Run] runs. Open connections stay; each new handshake uses what is
// in force. Its methods may be called concurrently.
//
// It uses crypto/tls and polls, instead of grpc's pemfile. That one logs the private key if a pair
// does not match, and reports no failures. A bad start shows there only as handshakes that hang.
type TLS struct {
	options TLSOptions
	rare    *zap.Logger // see [telemetry.Rare]
	server  bool
	inForce atomic.Pointer[keyring]
}

var _ credentials.TransportCredentials = (*TLS)(nil)

// ServerTLS reads the files and returns a server's side. An error names the file.
func ServerTLS(o TLSOptions) (*TLS, error) {
	switch {
	case o.Cert == "" || o.Key == "":
		return nil, errors.New("a TLS server needs a certificate and its key")
	case o.PeerName != "" && o.CA == "":
		return nil, errors.New("a name to check clients for needs an authority to check them against")
	case o.PeerName != "" && o.PeerOptional:
		return nil, errors.New("a name to check clients for needs all of them to have a certificate")
	}
	return newTLS(o, true)
}

// ClientTLS reads the files and returns a client's side. An error names the file.
func ClientTLS(o TLSOptions) (*TLS, error) {
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	return newTLS(o, false)
}

func newTLS(o TLSOptions, server bool) (*TLS, error) {
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	t := &TLS{options: o, rare: telemetry.Rare(o.Logger), server: server}
	k, err := t.load(t.read())
	if err != nil {
		return nil, err
	}
	t.use(k)
	return t, nil
}

// Run follows the files until ctx ends. If files do not load, it counts and logs that, and the files in use stay in use.
func (t *TLS) Run(ctx context.Context) {
	if t.options.Cert == "" && t.options.CA == "" {
		return // nothing to follow
	}
	follower[files]{
		interval: t.options.Poll,
		current:  t.inForce.Load().sum,
		tick:     func() { t.reportExpiry(t.inForce.Load()) },
		read: func() (files, [sha256.Size]byte) {
			f := t.read()
			return f, f.sum
		},
		accept: t.take,
	}.run(ctx)
}

// take puts in force what was read, or logs why not. Metrics come before the log, so that they are current for
// whoever has read it.
func (t *TLS) take(f files) {
	m, log := t.options.Metrics, t.options.Logger
	if f.sum == t.inForce.Load().sum {
		if m != nil {
			m.LastOK.Set(1)
		}
		log.Info("the TLS files are back at what is in use", telemetry.Clear(t.subject(), telemetry.TLSFilesRejected))
		return
	}
	k, err := t.load(f)
	if err == nil && k.expired() && !t.inForce.Load().expired() {
		err = fmt.Errorf("%s: the certificate expired at %s", t.options.Cert, k.expires.Format(time.RFC3339))
	}
	if err != nil {
		if m != nil {
			m.ReloadErrors.Inc()
			m.LastOK.Set(0)
		}
		telemetry.Raise(log, telemetry.TLSFilesRejected, t.subject(), zap.Error(err))
		return
	}
	if m != nil {
		m.Reloads.Inc()
	}
	t.use(k)
}

func (t *TLS) use(k *keyring) {
	t.inForce.Store(k)
	if m := t.options.Metrics; m != nil {
		m.LastOK.Set(1)
		if !k.expires.IsZero() {
			m.Expiry.Set(float64(k.expires.Unix()))
		}
	}
	t.options.Logger.Info("TLS files loaded", zap.String("cert", t.options.Cert), zap.String("ca", t.options.CA), zap.Time("expires", k.expires),
		telemetry.Clear(t.subject(), telemetry.TLSFilesRejected, telemetry.CertificateExpired))
	t.reportExpiry(k)
}

// subject tells the conditions of these files from those of others.
func (t *TLS) subject() string {
	return strings.Join([]string{t.options.Cert, t.options.Key, t.options.CA}, "\n")
}

// reportExpiry raises a condition once a certificate has expired. That is not an error, since clients that do not check the date
// can still be served.
func (t *TLS) reportExpiry(k *keyring) {
	if k.expired() && !k.reported {
		k.reported = true
		telemetry.Raise(t.options.Logger, telemetry.CertificateExpired, t.subject(), zap.String("file", t.options.Cert), zap.Time("expired", k.expires))
	}
}

// ServerHandshake is for grpc.
func (t *TLS) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := t.inForce.Load().creds.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: a probe of the port, which said nothing
		t.failed(conn, err)
	}
	return secure, info, err
}

// ClientHandshake is for grpc.
func (t *TLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := t.inForce.Load().creds.ClientHandshake(ctx, authority, conn)
	if err != nil && ctx.Err() == nil {
		t.failed(conn, err)
	}
	return secure, info, err
}

// failed counts and logs a handshake that failed. The error can have bytes that a stranger sent,
// so it is logged at debug only.
func (t *TLS) failed(conn net.Conn, err error) {
	if m := t.options.Metrics; m != nil {
		m.HandshakeErrors.Inc()
	}
	if t.server && strings.Contains(err.Error(), "missing selected ALPN property") { // grpc's credentials have no other word for it
		t.rare.Warn("TLS connection closed; more within ten seconds are only counted: the client named no protocol (ALPN), as HTTP/1 does, and this port speaks gRPC over HTTP/2",
			zap.Stringer("peer", conn.RemoteAddr()))
		return
	}
	t.options.Logger.Debug("TLS handshake failed", zap.Stringer("peer", conn.RemoteAddr()), zap.Error(err))
}

// Info is for grpc.
func (t *TLS) Info() credentials.ProtocolInfo { return t.inForce.Load().creds.Info() }

// Clone is for grpc. It returns t itself, which never changes for its callers.
func (t *TLS) Clone() credentials.TransportCredentials { return t }

// OverrideServerName is for grpc, which no longer calls it.
func (*TLS) OverrideServerName(string) error {
	return errors.New("the server name is fixed: set TLSOptions.PeerName")
}

// ChecksClients reports whether clients have to show a certificate. It may be called on nil, which is plain text.
func (t *TLS) ChecksClients() bool { return t != nil && t.options.CA != "" && !t.options.PeerOptional }

// HTTPClient returns the configuration of a client of HTTP/1.1, by the files that are in force now.
func (t *TLS) HTTPClient() *tls.Config { return t.config(t.inForce.Load(), "http/1.1") }

// Secure has an HTTP/1.1 server serve over TLS on l: on the listener that it returns. The reader of a
// connection does its handshake, with the files that are in force then. Connections that end during the
// handshake are counted. What net/http says of connections is logged at debug: it can have bytes that
// strangers sent.
func (t *TLS) Secure(s *http.Server, l net.Listener) net.Listener {
	s.ErrorLog = log.New(&zapio.Writer{Log: t.options.Logger, Level: zap.DebugLevel}, "", 0)
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if secure, ok := conn.(*tls.Conn); ok && state == http.StateClosed && !secure.ConnectionState().HandshakeComplete && t.options.Metrics != nil {
			t.options.Metrics.HandshakeErrors.Inc()
		}
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return t.config(t.inForce.Load(), "http/1.1"), nil
		},
	})
}

// config returns the TLS configuration for a protocol, with k's certificate and authorities.
func (t *TLS) config(k *keyring, protocol string) *tls.Config {
	c := &tls.Config{MinVersion: max(t.options.MinVersion, tls.VersionTLS12), NextProtos: []string{protocol}}
	if !t.server {
		c.ServerName = t.options.PeerName
		c.RootCAs = k.authorities
		if k.cert != nil {
			// It is sent whatever authorities the server names. The server's error says
			// better than ours why it rejects the certificate.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.cert, nil }
		}
		return c
	}
	c.Certificates = []tls.Certificate{*k.cert}
	// A resumed session would not check the client's certificate again, though the
	// authorities may have changed.
	c.SessionTicketsDisabled = true
	if k.authorities == nil {
		return c
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if t.options.PeerOptional {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.ClientCAs = k.authorities
	if name := t.options.PeerName; name != "" {
		c.VerifyConnection = func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(name) }
	}
	return c
}
