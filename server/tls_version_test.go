package server

import (
	"crypto/tls"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestMinimumTLSVersion connects with each version to both TLS listeners.
func TestMinimumTLSVersion(t *testing.T) {
	_, f := serverFiles(t)
	for _, tt := range []struct {
		minVersion uint16
		accepts    map[uint16]bool // whether a client with this version is accepted
	}{
		{0, map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{tls.VersionTLS10, map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{tls.VersionTLS12, map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{tls.VersionTLS13, map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: false, tls.VersionTLS13: true}},
	} {
		r := serve(t, service(t, answer.Settings{}, oneRule), Options{
			JSONAddr: "127.0.0.1:0", TLS: serverTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key, MinVersion: tt.minVersion}),
		})
		for version, want := range tt.accepts {
			for listener, protocol := range map[string]string{"grpc": "h2", "json": "http/1.1"} {
				dialer := tls.Dialer{Config: &tls.Config{
					InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS10, MaxVersion: version,
				}}
				conn, err := dialer.DialContext(t.Context(), "tcp", r.addr[listener])
				if (err == nil) != want {
					t.Errorf("%s listener with minimum %s and a client with %s: %v", listener, tls.VersionName(tt.minVersion), tls.VersionName(version), err)
				}
				if err != nil {
					continue
				}
				if secure, ok := conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != protocol {
					t.Errorf("%s speaks %q, want %q", listener, secure.ConnectionState().NegotiatedProtocol, protocol)
				}
				_ = conn.Close()
			}
		}
	}
}
