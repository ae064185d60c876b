package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestFloodsEndOverPlainTextAndTLS floods the server with useless frames over each kind of
// connection, while another client makes calls.
func TestFloodsEndOverPlainTextAndTLS(t *testing.T) {
	ca, pair := serverFiles(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s := service(t, answer.Settings{}, oneRule)
			var options Options
			dial := func(addr string) (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "tcp", addr) }
			creds := insecure.NewCredentials()
			if secure {
				options.TLS = serverTLS(t, access.TLSOptions{Cert: pair.Cert, Key: pair.Key})
				creds = clientTLS(t, access.TLSOptions{CA: pair.CA})
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(ca.PEM)
				dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{"h2"}}}
				dial = func(addr string) (net.Conn, error) { return dialer.DialContext(t.Context(), "tcp", addr) }
			}
			r := serve(t, s, options)
			if err := r.request(t, creds); err != nil {
				t.Fatal(err)
			}
			conn, err := dial(r.addr["grpc"])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var flood bytes.Buffer
			flood.WriteString(http2.ClientPreface)
			frames := http2.NewFramer(&flood, nil)
			for range 10_000 {
				if err := frames.WriteSettings(); err != nil {
					t.Fatal(err)
				}
			}
			go func() { _, _ = conn.Write(flood.Bytes()) }() // fails when the server closes the connection
			_, err = io.Copy(io.Discard, conn)               // until the server closes the connection
			t.Logf("the connection ended: %v", err)
			if diff := cmp.Diff(map[string]float64{"flood": 1}, endedBy(t, s)); diff != "" {
				t.Errorf("closed connections by reason (-want +got):\n%s", diff)
			}
			if err := r.request(t, creds); err != nil {
				t.Errorf("a call of another client: %v", err)
			}
		})
	}
}
