package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// A Server is what is needed to reach one.
type Server struct {
	// Network is "tcp" or "unix", Address a host and port, or a path.
	Network, Address string
	// Database is a number that SELECT takes.
	Database int
	// TLS says how to secure connections. Nil means that they are plain.
	TLS *TLS
	// User and Password are those of the address, often empty. AuthFile, if set, is a file with
	// `password` or `user:password`, which each connection reads anew, since passwords that
	// expire are replaced.
	User, Password, AuthFile string
}

// TLS names files of PEM blocks. Each connection reads them anew, so replaced ones are in force from
// the next connection on.
type TLS struct {
	// CA has the authorities that the server's certificate is checked by. Empty: the system's.
	CA string
	// Cert and Key are what this side shows. Empty: nothing.
	Cert, Key string
	// SkipName accepts a certificate of the authorities for any host name.
	SkipName bool
}

// schemes are those of ParseURL.
const schemes = "redis://host:port/database, rediss://host:port/database or unix:///path"

// ParseURL returns the server that a URL names: redis (rediss with TLS), with user, password and the
// number of a database if need be, or unix with a path. An error shows no password.
func ParseURL(text string) (Server, error) {
	u, err := url.Parse(text)
	if err != nil { // whose text would show it all
		return Server{}, errors.New("parse the store's URL: it is none; must be " + schemes)
	}
	s := Server{Network: "tcp", User: u.User.Username()}
	s.Password, _ = u.User.Password()
	shown := u.Redacted()
	if u.RawQuery != "" || u.Fragment != "" {
		return Server{}, fmt.Errorf("parse %s: parameters are not known; must be %s", shown, schemes)
	}
	switch u.Scheme {
	case "rediss":
		s.TLS = &TLS{}
	case "redis":
	case "unix":
		if u.Host != "" || u.Path == "" {
			return Server{}, fmt.Errorf("parse %s: needs a path, as in unix:///run/valkey.sock", shown)
		}
		s.Network, s.Address = "unix", u.Path
		return s, nil
	default:
		return Server{}, fmt.Errorf("parse %s: scheme %q is not known; must be %s", shown, u.Scheme, schemes)
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return Server{}, fmt.Errorf("parse %s: has no host; must be %s", shown, schemes)
	}
	if port == "" {
		port = "6379"
	}
	s.Address = net.JoinHostPort(host, port)
	if number := strings.Trim(u.Path, "/"); number != "" {
		if s.Database, err = strconv.Atoi(number); err != nil || s.Database < 0 {
			return Server{}, fmt.Errorf("parse %s: database %q must be a number from 0 on", shown, number)
		}
	}
	return s, nil
}

// String is what s may be called in logs and metrics.
func (s *Server) String() string { return s.Address }

// credentials returns the user and the password of a new connection.
func (s *Server) credentials() (user, password string, err error) {
	if s.AuthFile == "" {
		return s.User, s.Password, nil
	}
	text, err := os.ReadFile(s.AuthFile)
	if err != nil {
		return "", "", fmt.Errorf("read the store's password: %w", err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" {
		return "", "", fmt.Errorf("read the store's password: %s is empty; must be `password` or `user:password`", s.AuthFile)
	}
	if user, password, found := strings.Cut(line, ":"); found {
		return user, password, nil
	}
	return "", line, nil
}

// Check returns an error if a file that s names cannot be read or used.
func (s *Server) Check() error {
	_, _, err := s.credentials()
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
			return nil, fmt.Errorf("read the store's authorities: %s holds no certificate that can be read", t.CA)
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
			among := x509.NewCertPool()
			for _, cert := range state.PeerCertificates[1:] {
				among.AddCert(cert)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: among})
			return err
		}
	}
	return c, nil
}
