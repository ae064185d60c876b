package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// host is the name in the server's certificates, and san the name in those of clients.
const (
	host = "sluice.test"
	san  = "envoy.test"
)

func authority(t *testing.T) *testcert.Authority {
	t.Helper()
	a, err := testcert.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *testcert.Authority, l testcert.Leaf) testcert.Pair {
	t.Helper()
	p, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write writes the files to a new directory.
func write(t *testing.T, p testcert.Pair, ca []byte) testcert.Files {
	t.Helper()
	f, err := testcert.Mount(t.TempDir(), p, ca)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// serverFiles returns an authority, and files with a certificate that it has issued for the server.
func serverFiles(t *testing.T) (*testcert.Authority, testcert.Files) {
	t.Helper()
	a := authority(t)
	return a, write(t, issue(t, a, testcert.Leaf{Names: []string{host}}), a.PEM)
}

func serverTLS(t *testing.T, o access.TLSOptions) *access.TLS {
	t.Helper()
	s, err := access.ServerTLS(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func clientTLS(t *testing.T, o access.TLSOptions) *access.TLS {
	t.Helper()
	if o.PeerName == "" {
		o.PeerName = host
	}
	c, err := access.ClientTLS(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request sends one request over a new connection.
func (r *running) request(t *testing.T, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.addr["grpc"], grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), simpleRequest())
	return err
}

// lines contains log lines for which a test can wait. Logging never blocks.
type lines chan string

func newLines() (lines, *zap.Logger) {
	l := make(lines, 1000)
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "message"})
	return l, zap.New(zapcore.NewCore(encoder, zapcore.AddSync(l), zap.DebugLevel))
}

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default: // drop the line: no test waits for this many
	}
	return len(line), nil
}

// await returns the next line that contains text.
func (l lines) await(t *testing.T, text string) string {
	t.Helper()
	for {
		if line := <-l; strings.Contains(line, text) {
			return line
		}
	}
}

func TestTLSRejectsPeersWithoutARight(t *testing.T) {
	ours, files := serverFiles(t)
	otherAuthority := authority(t)
	log, logger := newLines()
	s := service(t, answer.Settings{}, oneRule)
	metrics := s.Metrics().TLS("grpc")
	mutual := serve(t, s, Options{TLS: serverTLS(t, access.TLSOptions{
		Cert: files.Cert, Key: files.Key, CA: files.CA, PeerName: san, Metrics: metrics, Logger: logger,
	})})
	oneSided := serve(t, s, Options{TLS: serverTLS(t, access.TLSOptions{
		Cert: files.Cert, Key: files.Key, Metrics: metrics, Logger: logger,
	})})
	good := issue(t, ours, testcert.Leaf{Names: []string{"other.test", san}})
	client := func(p testcert.Pair) *access.TLS {
		f := write(t, p, ours.PEM)
		return clientTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key, CA: f.CA})
	}
	old := credentials.NewTLS(&tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true})
	for _, tt := range []struct {
		name  string
		creds credentials.TransportCredentials
		// The expected error of the client; "" means that it is served.
		mutual, oneSided string
	}{
		{"a valid client", client(good), "", ""},
		{"a client without a certificate", clientTLS(t, access.TLSOptions{CA: files.CA}), "client didn't provide a certificate", ""},
		{"a client of another authority", client(issue(t, otherAuthority, testcert.Leaf{Names: []string{san}})), "certificate signed by unknown authority", ""},
		{"a client with another name", client(issue(t, ours, testcert.Leaf{Names: []string{"other.test"}})), "valid for other.test, not " + san, ""},
		{"a client with the name in a URI", client(issue(t, ours, testcert.Leaf{Names: []string{"spiffe://" + san}})), "not valid for any names, but wanted to match " + san, ""},
		{"an expired client", client(issue(t, ours, testcert.Leaf{Names: []string{san}, Expires: time.Now().Add(-time.Hour)})), "certificate has expired", ""},
		{"a client in plain text", insecure.NewCredentials(), "first record does not look like a TLS handshake", "first record does not look like a TLS handshake"},
		{"a client with TLS 1.1", old, "client offered only unsupported versions", "client offered only unsupported versions"},
		{"a client that trusts another authority", clientTLS(t, access.TLSOptions{CA: write(t, good, otherAuthority.PEM).CA}), "remote error: tls: bad certificate", "remote error: tls: bad certificate"},
		{"a client that expects another name", clientTLS(t, access.TLSOptions{CA: files.CA, PeerName: "other.test"}), "remote error: tls: bad certificate", "remote error: tls: bad certificate"},
		{"a client that trusts the system", clientTLS(t, access.TLSOptions{}), "remote error: tls: bad certificate", "remote error: tls: bad certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, side := range []struct {
				name string
				to   *running
				want string
			}{{"mutual", mutual, tt.mutual}, {"one-sided", oneSided, tt.oneSided}} {
				before := testutil.ToFloat64(metrics.HandshakeErrors)
				err := side.to.request(t, tt.creds)
				if side.want == "" {
					if err != nil {
						t.Errorf("%s: error is %v, want success", side.name, err)
					}
					continue
				}
				if err == nil {
					t.Fatalf("%s: the request succeeds, want an error", side.name)
				}
				log.await(t, side.want)
				if got := testutil.ToFloat64(metrics.HandshakeErrors); got != before+1 {
					t.Errorf("%s: %v failed handshakes counted, want 1", side.name, got-before)
				}
			}
		})
	}
	t.Run("other listeners use plain HTTP", func(t *testing.T) {
		for path, want := range map[string]string{
			mutual.addr["http"] + "/healthcheck": "OK",
			mutual.addr["metrics"] + "/metrics":  `sluice_tls_handshake_errors_total{use="grpc"}`,
		} {
			if code, body := get(t, "http://"+path); code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s is %d without %q", path, code, want)
			}
		}
	})
	t.Run("no session is resumed", func(t *testing.T) {
		pair, err := tls.X509KeyPair(good.Cert, good.Key)
		if err != nil {
			t.Fatal(err)
		}
		dialer := tls.Dialer{Config: &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
			MaxVersion:         tls.VersionTLS12, // TLS 1.2 sends the ticket during the handshake
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}}
		for range 2 {
			conn, err := dialer.DialContext(t.Context(), "tcp", mutual.addr["grpc"])
			if err != nil {
				t.Fatal(err)
			}
			if secure, ok := conn.(*tls.Conn); !ok || secure.ConnectionState().DidResume {
				t.Error("the session is resumed: the client's certificate was not checked")
			}
			conn.Close()
		}
	})
	t.Run("a probe of the port is not a failure", func(t *testing.T) {
		before := testutil.ToFloat64(metrics.HandshakeErrors)
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", mutual.addr["grpc"])
		if err != nil {
			t.Fatal(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn) // until the server closes the connection
		conn.Close()
		if got := testutil.ToFloat64(metrics.HandshakeErrors); got != before {
			t.Errorf("%v failed handshakes, want %v", got, before)
		}
	})
}

func TestTLSStartsWithGoodFilesOnly(t *testing.T) {
	a := authority(t)
	pair, other := issue(t, a, testcert.Leaf{Names: []string{host}}), issue(t, a, testcert.Leaf{Names: []string{host}})
	good := write(t, pair, a.PEM)
	mismatched := write(t, testcert.Pair{Cert: pair.Cert, Key: other.Key}, a.PEM)
	two := slices.Concat(pair.Cert, a.PEM)
	cut := write(t, testcert.Pair{Cert: two[:len(two)-20], Key: pair.Key}, two[:len(two)-20])
	empty := write(t, testcert.Pair{}, nil)
	missing := filepath.Join(t.TempDir(), "nosuch")
	for _, tt := range []struct {
		name    string
		options access.TLSOptions
		want    string
	}{
		{"no certificate", access.TLSOptions{Key: good.Key}, "needs a certificate and its key"},
		{"name without authority", access.TLSOptions{Cert: good.Cert, Key: good.Key, PeerName: san}, "needs a CA that verifies the clients"},
		{"missing certificate", access.TLSOptions{Cert: missing, Key: good.Key}, missing},
		{"missing key", access.TLSOptions{Cert: good.Cert, Key: missing}, missing},
		{"missing authority", access.TLSOptions{Cert: good.Cert, Key: good.Key, CA: missing}, missing},
		{"mismatched pair", access.TLSOptions{Cert: mismatched.Cert, Key: mismatched.Key}, mismatched.Key + ": tls: private key does not match"},
		{"a truncated chain", access.TLSOptions{Cert: cut.Cert, Key: cut.Key}, cut.Cert + ": only 1 of 2 PEM blocks can be decoded"},
		{"truncated authorities", access.TLSOptions{Cert: good.Cert, Key: good.Key, CA: cut.CA}, cut.CA + ": only 1 of 2 PEM blocks can be decoded"},
		{"empty certificate", access.TLSOptions{Cert: empty.Cert, Key: good.Key}, empty.Cert + " contains no PEM certificate"},
		{"empty authority", access.TLSOptions{Cert: good.Cert, Key: good.Key, CA: empty.CA}, empty.CA + " contains no PEM certificate"},
		{"a key instead of the certificate", access.TLSOptions{Cert: good.Key, Key: good.Key}, good.Key + " contains no PEM certificate"},
		{"a file that is too large", access.TLSOptions{Cert: "/dev/zero", Key: good.Key}, "/dev/zero is larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := access.ServerTLS(tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := access.ClientTLS(access.TLSOptions{Cert: good.Cert}); err == nil {
		t.Error("a client with half a pair is accepted")
	}
}
