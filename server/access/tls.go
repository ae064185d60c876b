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

// TLSOptions configure the TLS connections of a server or client.
type TLSOptions struct {
	// Cert is the path of a PEM file with the certificate and its chain. Key is the path of the
	// private key. A server needs both; a client may have neither.
	Cert, Key string
	// CA is the path of a PEM file with the authorities that verify the peer's certificate, instead
	// of the system's. Optional: without it, a server requests no client certificates, and a client
	// uses the system's authorities.
	CA string
	// PeerName must be one of the DNS names or IP addresses of the peer's certificate. Optional: by
	// default, a client expects the host that it connects to, and a server accepts each certificate
	// that CA has signed. On a server it requires CA.
	PeerName string
	// PeerOptional lets clients connect without a certificate, even if CA is set. A certificate
	// that a client sends is verified.
	PeerOptional bool
	// MinVersion is the minimum TLS version. 0 means tls.VersionTLS12, which is also the lowest
	// allowed.
	MinVersion uint16
	// Use names the listener or client in conditions and the log, such as grpc. Optional.
	Use string
	// Metrics and Logger report reloads and failed handshakes. Optional.
	Metrics *telemetry.TLS
	Logger  *zap.Logger
}

// TLS provides credentials for servers or clients of gRPC and HTTP, which follow their files while
// [TLS.Run] runs. A change applies to new handshakes; open connections stay. Its methods may be
// called concurrently.
//
// It does not use grpc's pemfile, which logs the private key if it does not match the certificate,
// does not report failures, and lets handshakes hang if the first load fails.
type TLS struct {
	options TLSOptions
	rare    *zap.Logger // logger for errors of clients
	server  bool
	current atomic.Pointer[keyring]
}

var _ credentials.TransportCredentials = (*TLS)(nil)

// ServerTLS loads the files for a server. An error names the file.
func ServerTLS(o TLSOptions) (*TLS, error) {
	switch {
	case o.Cert == "" || o.Key == "":
		return nil, errors.New("a TLS server needs a certificate and its key")
	case o.PeerName != "" && o.CA == "":
		return nil, errors.New("a required client name needs a CA that verifies the clients")
	case o.PeerName != "" && o.PeerOptional:
		return nil, errors.New("a required client name needs a certificate from every client")
	}
	return newTLS(o, true)
}

// ClientTLS loads the files for a client. An error names the file.
func ClientTLS(o TLSOptions) (*TLS, error) {
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("a certificate needs a key, and a key a certificate")
	}
	return newTLS(o, false)
}

func newTLS(o TLSOptions, server bool) (*TLS, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Use != "" {
		o.Logger = o.Logger.With(zap.String("use", o.Use))
	}
	t := &TLS{options: o, rare: telemetry.Rare(o.Logger), server: server}
	k, err := t.load(t.read())
	if err != nil {
		return nil, err
	}
	t.activate(k)
	return t, nil
}

// Run reloads the files when they change, until ctx is done. If files cannot be loaded, the
// previous ones stay in use.
func (t *TLS) Run(ctx context.Context) {
	if t.options.Cert == "" && t.options.CA == "" {
		return // nothing to follow
	}
	follower[files]{
		current: t.current.Load().sum,
		tick:    func() { t.reportExpiry(t.current.Load()) },
		read: func() (files, [sha256.Size]byte) {
			f := t.read()
			return f, f.sum
		},
		accept: t.reload,
	}.run(ctx)
}

// reload activates files, or counts and logs why they cannot be used. It updates metrics before it
// logs, so that they are current when the line is read.
func (t *TLS) reload(f files) {
	m := t.options.Metrics
	log := t.options.Logger
	if f.sum == t.current.Load().sum {
		if m != nil {
			m.LastOK.Set(1)
		}
		log.Info("the TLS files match those in use again", telemetry.Clear(t.subject(), telemetry.TLSFilesRejected))
		return
	}
	k, err := t.load(f)
	if err == nil && k.expiry() == telemetry.CertificateExpired &&
		t.current.Load().expiry() != telemetry.CertificateExpired {
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
	t.activate(k)
}

func (t *TLS) activate(k *keyring) {
	t.current.Store(k)
	if m := t.options.Metrics; m != nil {
		m.LastOK.Set(1)
		if !k.expires.IsZero() {
			m.Expiry.Set(float64(k.expires.Unix()))
			m.ExpiryWarning.Set(float64(k.warnFrom.Unix()))
		}
	}
	t.options.Logger.Info("TLS files loaded", zap.String("cert", t.options.Cert), zap.String("ca", t.options.CA),
		zap.Time("expires", k.expires),
		telemetry.Clear(t.subject(), telemetry.TLSFilesRejected, telemetry.CertificateExpiresSoon,
			telemetry.CertificateExpired))
	t.reportExpiry(k)
}

// subject distinguishes the conditions of these files from those of other files and uses.
func (t *TLS) subject() string {
	return strings.Join([]string{t.options.Use, t.options.Cert, t.options.Key, t.options.CA}, "\n")
}

// reportExpiry raises a condition when a certificate will soon expire, and another one when it has
// expired. The certificate stays in use: some clients do not check the date.
func (t *TLS) reportExpiry(k *keyring) {
	code := k.expiry()
	if code == k.reported {
		return
	}
	was := k.reported
	k.reported = code
	fields := []zap.Field{zap.String("file", t.options.Cert), zap.Time("expires", k.expires)}
	if code != "" {
		telemetry.Raise(t.options.Logger, code, t.subject(), fields...)
	}
	if was != "" {
		t.options.Logger.Info("was: "+was.Define().Sentence, append(fields, telemetry.Clear(t.subject(), was))...)
	}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (t *TLS) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := t.current.Load().creds.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: a probe closed the connection without sending data
		t.reportFailure(conn, err)
	}
	return secure, info, err
}

// ClientHandshake implements [credentials.TransportCredentials].
func (t *TLS) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := t.current.Load().creds.ClientHandshake(ctx, authority, conn)
	if err != nil && ctx.Err() == nil {
		t.reportFailure(conn, err)
	}
	return secure, info, err
}

// reportFailure counts and logs a failed handshake. The error is only logged at debug, because it
// can contain bytes from the peer.
func (t *TLS) reportFailure(conn net.Conn, err error) {
	if m := t.options.Metrics; m != nil {
		m.HandshakeErrors.Inc()
	}
	if t.server && strings.Contains(err.Error(), "missing selected ALPN property") { // grpc does not export this error
		t.rare.Warn("TLS connection closed because the client offered no ALPN protocol, as an HTTP/1 client does; this port serves gRPC over HTTP/2; more within ten seconds are only counted",
			zap.Stringer("peer", conn.RemoteAddr()))
		return
	}
	t.options.Logger.Debug("TLS handshake failed", zap.Stringer("peer", conn.RemoteAddr()), zap.Error(err))
}

// Info implements [credentials.TransportCredentials].
func (t *TLS) Info() credentials.ProtocolInfo { return t.current.Load().creds.Info() }

// Clone implements [credentials.TransportCredentials]. It returns t itself, which callers cannot
// modify.
func (t *TLS) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements [credentials.TransportCredentials]. grpc no longer calls it.
func (*TLS) OverrideServerName(string) error {
	return errors.New("the server name is fixed: set TLSOptions.PeerName")
}

// ChecksClients reports whether clients must have a certificate. It is false for nil, which means
// plain text.
func (t *TLS) ChecksClients() bool { return t != nil && t.options.CA != "" && !t.options.PeerOptional }

// HTTPClient returns the configuration of an HTTP/1.1 client with the current files.
func (t *TLS) HTTPClient() *tls.Config { return t.config(t.current.Load(), "http/1.1") }

// Secure configures an HTTP/1.1 server for TLS and returns the listener that it must serve. The
// handshake happens in the goroutine of the connection, with the files that are current then.
// Connections that end during the handshake are counted. The server's errors are logged at debug,
// because they can contain bytes from the peer.
func (t *TLS) Secure(s *http.Server, l net.Listener) net.Listener {
	s.ErrorLog = log.New(&zapio.Writer{Log: t.options.Logger, Level: zap.DebugLevel}, "", 0)
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if secure, ok := conn.(*tls.Conn); ok && state == http.StateClosed &&
			!secure.ConnectionState().HandshakeComplete && t.options.Metrics != nil {
			t.options.Metrics.HandshakeErrors.Inc()
		}
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return t.config(t.current.Load(), "http/1.1"), nil
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
			// The certificate is sent even if the server does not list its authority: the server's
			// error is more precise.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.cert, nil }
		}
		return c
	}
	c.Certificates = []tls.Certificate{*k.cert}
	// A resumed session would skip the check of the client's certificate, although the authorities
	// may have changed.
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
