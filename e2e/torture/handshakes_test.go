//go:build torture

package torture

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// TestHandshakes breaks TLS handshakes in many ways while other clients call with certificates.
// Go's client cannot request a renegotiation, so that case is missing.
func TestHandshakes(t *testing.T) {
	const host = "sluice.test"
	issue := func(a *testcert.Authority, l testcert.Leaf) tls.Certificate {
		p, err := a.Issue(l)
		must.OK(t, err)
		c, err := tls.X509KeyPair(p.Cert, p.Key)
		must.OK(t, err)
		return c
	}
	authority := func(name string) *testcert.Authority {
		a, err := testcert.New(name)
		must.OK(t, err)
		return a
	}
	ours, theirs := authority("ours"), authority("theirs")
	pair, err := ours.Issue(testcert.Leaf{Names: []string{host}})
	must.OK(t, err)
	files, err := testcert.Mount(t.TempDir(), pair, ours.PEM)
	must.OK(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ours.PEM)
	good := &tls.Config{
		RootCAs: roots, ServerName: host, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{issue(ours, testcert.Leaf{Names: []string{"envoy.test"}})},
	}
	with := func(change func(*tls.Config)) *tls.Config {
		c := good.Clone()
		change(c)
		return c
	}
	each := Pick(20, 200)
	h := runUnderAttack(t, Options{Args: []string{
		"--grpc-tls-cert=" + files.Cert, "--grpc-tls-key=" + files.Key, "--grpc-client-ca=" + files.CA, "--connection-timeout=20s", // a busy machine needs seconds for a valid one
	}}, func(s *sluice.Sluice) {
		addr := s.Addr("grpc")
		if err := useTLS(t, addr, good); err != nil {
			t.Fatalf("a valid client: %v", err)
		}
		for name, c := range map[string]*tls.Config{
			"TLS 1.1":           with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }),
			"no certificate":    with(func(c *tls.Config) { c.Certificates = nil }),
			"another protocol":  with(func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }),
			"no protocol":       with(func(c *tls.Config) { c.NextProtos = nil }),
			"another authority": with(func(c *tls.Config) { c.Certificates = []tls.Certificate{issue(theirs, testcert.Leaf{})} }),
			"an expired certificate": with(func(c *tls.Config) {
				c.Certificates = []tls.Certificate{issue(ours, testcert.Leaf{Expires: time.Now().Add(-time.Hour)})}
			}),
		} {
			t.Run(name, func(t *testing.T) {
				for range each {
					if err := useTLS(t, addr, c); err == nil {
						t.Fatal("the client was served")
					}
				}
			})
		}
		t.Run("bytes that are not TLS", func(t *testing.T) {
			checkEnded(t, addr, each, hostile.Preface(), []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 1000))
		})
		t.Run("incomplete handshakes", func(t *testing.T) {
			hello := clientHello(t, good)
			checkEnded(t, addr, Pick(50, 500), nil, hello[:3], hello[:len(hello)/2], hello)
		})
	}, func(s *sluice.Sluice) {
		if got, least := suite.Metrics(t, s).Sum("sluice_tls_handshake_errors_total"), float64(8*each); got < least {
			t.Errorf("the metric counts %v failed handshakes, want at least %v", got, least)
		}
	}, grpc.WithTransportCredentials(credentials.NewTLS(good)))
	t.Log("effect on other clients: ", h)
	h.checkMemory(t, 0)
}

// TestTLSWithoutTLS sends TLS to listeners without TLS.
func TestTLSWithoutTLS(t *testing.T) {
	hello := clientHello(t, &tls.Config{ServerName: "sluice.test", NextProtos: []string{"h2"}})
	runUnderAttack(t, Options{}, func(s *sluice.Sluice) {
		checkEnded(t, s.Addr("grpc"), Pick(50, 500), hello)
		checkEnded(t, s.Addr("http"), Pick(50, 500), hello)
	}, nil)
}

// useTLS starts HTTP/2 over TLS and returns the error. In TLS 1.3 a client gets the rejection
// of its certificate only after its handshake.
func useTLS(t *testing.T, addr string, config *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write(hostile.Preface()); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 9))
	return err
}

// clientHello returns the first bytes of a handshake.
func clientHello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- tls.Client(client, config).HandshakeContext(t.Context()) }()
	hello := make([]byte, 4<<10)
	n, err := server.Read(hello)
	if err = errors.Join(err, server.Close(), client.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Fatal("a handshake succeeded without TLS")
	}
	return hello[:n]
}
