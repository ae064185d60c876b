package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// tlsFlags configures TLS of the gRPC listener.
type tlsFlags struct {
	Cert       string   `name:"grpc-tls-cert" placeholder:"FILE" help:"Server certificate and chain (PEM). Enables TLS on the gRPC listener, which then rejects plaintext."`
	Key        string   `name:"grpc-tls-key" placeholder:"FILE" help:"Private key of --grpc-tls-cert."`
	ClientCA   string   `name:"grpc-client-ca" placeholder:"FILE" help:"CA certificates (PEM) that verify the certificates of clients. Default: clients need no certificate."`
	ClientSAN  string   `name:"grpc-client-san" placeholder:"NAME" help:"DNS name or IP address that the certificates of clients must contain. Default: any."`
	Allow      []string `name:"grpc-allow" sep:"none" placeholder:"NAME=DOMAIN,..." help:"Domains that a client may use. A client that is not listed may use none. NAME is a DNS name or URI in its certificate, such as spiffe://cluster.local/ns/shop/sa/envoy; a URI that ends in /* matches all URIs below it. DOMAIN * matches every domain. May be repeated. Default: every client may use every domain."`
	MinVersion string   `name:"grpc-tls-min-version" enum:"1.2,1.3" default:"1.2" placeholder:"1.2|1.3" help:"Minimum TLS version."`

	allow *access.AllowList // parsed from Allow by check; nil without --grpc-allow
}

// tlsVersions are the values of --grpc-tls-min-version.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (f *tlsFlags) check(jsonAddr string) error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--grpc-tls-cert and --grpc-tls-key must be set together")
	case f.ClientCA != "" && f.Cert == "":
		return errors.New("--grpc-client-ca requires --grpc-tls-cert: clients only present certificates over TLS")
	case f.ClientSAN != "" && f.ClientCA == "":
		return errors.New("--grpc-client-san requires --grpc-client-ca: names in certificates that are not verified prove nothing")
	case len(f.Allow) > 0 && f.ClientCA == "":
		return errors.New("--grpc-allow requires --grpc-client-ca: clients are identified by the names in verified certificates")
	case jsonAddr != "" && f.Cert == "":
		return errors.New("--json-addr requires --grpc-tls-cert: it serves /json over TLS")
	}
	var err error
	f.allow, err = allowList(f.Allow)
	return err
}

// serverTLS returns the TLS configuration of the gRPC listener, nil for plaintext.
func (f *tlsFlags) serverTLS(m *telemetry.Metrics, logger *zap.Logger) (*access.TLS, error) {
	if f.Cert == "" {
		return nil, nil
	}
	secure, err := access.ServerTLS(access.TLSOptions{
		Cert: f.Cert, Key: f.Key, CA: f.ClientCA, PeerName: f.ClientSAN, MinVersion: tlsVersions[f.MinVersion],
		Use: "grpc", Metrics: m.TLS("grpc"), Logger: logger,
	})
	if err != nil {
		return nil, flagError(err, "--grpc-tls-cert", f.Cert, "--grpc-tls-key", f.Key, "--grpc-client-ca", f.ClientCA)
	}
	return secure, nil
}

// flagError prefixes err with the flags whose files it mentions. Flags are pairs of a flag and its
// file.
func flagError(err error, flags ...string) error {
	var named []string
	for i := 0; i+1 < len(flags); i += 2 {
		if file := flags[i+1]; file != "" && strings.Contains(err.Error(), file) {
			named = append(named, flags[i])
		}
	}
	if len(named) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(named, ", "), err)
}
