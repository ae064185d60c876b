package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// A Server is the address and the credentials of a server, of the primary that Sentinels know, or
// of a cluster.
type Server struct {
	// Network is "tcp" or "unix", Address a host and port, or a path. They are empty with Sentinels
	// or Nodes.
	Network, Address string
	// Sentinels are the hosts and ports of Sentinels, which know the primary by the name Master.
	Sentinels []string
	Master    string
	// Nodes are the hosts and ports of some nodes of a cluster.
	Nodes []string
	// Database is the number for SELECT.
	Database int
	// TLS configures connections, also to Sentinels. Nil means plain connections.
	TLS *TLS
	// Auth has the credentials for the server, and SentinelAuth those for Sentinels.
	Auth, SentinelAuth Auth
	// DialContext opens connections without TLS, also to Sentinels and nodes. Nil uses
	// [net.Dialer].
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Auth is a user and a password, which may be empty. File, if set, has `password` or
// `user:password`. Each connection reads it again, because passwords that expire are replaced.
type Auth struct{ User, Password, File string }

// ParseAuth parses `password` or `user:password`.
func ParseAuth(text string) Auth {
	if user, password, found := strings.Cut(text, ":"); found {
		return Auth{User: user, Password: password}
	}
	return Auth{Password: text}
}

// TLS names PEM files. The tags are those of the flags of sluice serve. Each connection reads the
// files again.
type TLS struct {
	// CA has the authorities that verify the server's certificate. Empty means the system's.
	CA string `name:"store-ca" placeholder:"FILE" help:"CA certificates (PEM) that verify the certificate of the store. Default: those of the system."`
	// Cert and Key are the client certificate. Empty means none.
	Cert string `name:"store-cert" placeholder:"FILE" help:"Client certificate (PEM) for the store. Default: none."`
	Key  string `name:"store-key" placeholder:"FILE" help:"Private key of --store-cert."`
	// SkipName accepts a valid certificate for any host name.
	SkipName bool `name:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" hidden:"" help:"Do not verify the host name in the certificate of the store. Logs a warning."`
}

// String is the name of s in logs and metrics.
func (s *Server) String() string {
	switch {
	case s.Sentinels != nil:
		return s.Master
	case s.Nodes != nil:
		return strings.Join(s.Nodes, ",")
	default:
		return s.Address
	}
}

// At returns a copy of s with another host and port.
func (s *Server) At(address string) *Server {
	one := *s
	one.Network = "tcp"
	one.Address = address
	one.Sentinels = nil
	one.Nodes = nil
	return &one
}

// Sentinel returns the Sentinel of s with a host and port.
func (s *Server) Sentinel(address string) *Server {
	one := s.At(address)
	one.Auth = s.SentinelAuth
	one.Database = 0
	return one
}

// credentials returns the user and the password of a new connection.
func (a *Auth) credentials() (user, password string, err error) {
	if a.File == "" {
		return a.User, a.Password, nil
	}
	text, err := os.ReadFile(a.File)
	if err != nil {
		return "", "", fmt.Errorf("read the store's password: %w", err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" {
		return "", "",
			fmt.Errorf("read the store's password: %s is empty; must be `password` or `user:password`", a.File)
	}
	read := ParseAuth(line)
	return read.User, read.Password, nil
}

// Check returns an error if a file that s names cannot be read or used.
func (s *Server) Check() error {
	_, _, err := s.Auth.credentials()
	_, _, bad := s.SentinelAuth.credentials()
	err = errors.Join(err, bad)
	if s.TLS != nil {
		_, bad := s.TLS.config(s.host())
		err = errors.Join(err, bad)
	}
	return err
}

func (s *Server) host() string {
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return s.Address
	}
	return host
}

// config reads the files.
func (t *TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read the store's authorities: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the store's authorities: %s has no readable certificate", t.CA)
		}
	}
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return nil, errors.New("the store's certificate and key must be given together")
	case t.Cert != "":
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read the store's certificate %s with key %s: %w", t.Cert, t.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.SkipName {
		roots := c.RootCAs
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(state tls.ConnectionState) error {
			intermediates := x509.NewCertPool()
			for _, cert := range state.PeerCertificates[1:] {
				intermediates.AddCert(cert)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
			return err
		}
	}
	return c, nil
}
