package access

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"
)

// TestIdentityOf checks that clients with the same address, or with the same names, have the same
// identity.
func TestIdentityOf(t *testing.T) {
	tcp := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	withCertificate := func(c *x509.Certificate) credentials.TLSInfo {
		return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}}
	}
	one, two := certificate(t, "spiffe://a/one"), certificate(t, "spiffe://a/two", "two.example.com")
	nameless := &x509.Certificate{RawSubject: []byte("CN=one")}
	seen := map[string]int{}
	for i, clients := range [][]string{
		{IdentityOf(nil, tcp("10.0.0.1", 1)), IdentityOf(nil, tcp("10.0.0.1", 2)), IdentityOf(nil, tcp("::ffff:10.0.0.1", 1)), IdentityOf(credentials.TLSInfo{}, tcp("10.0.0.1", 1))},
		{IdentityOf(nil, tcp("10.0.0.2", 1))},
		{IdentityOf(nil, tcp("127.0.0.1", 1))},
		{IdentityOf(nil, tcp("fd00::1", 1)), IdentityOf(nil, tcp("fd00::1", 2)), IdentityOf(nil, tcp("fd00::1:2:3:4", 1))},
		{IdentityOf(nil, tcp("fd00:0:0:1::1", 1))},
		{IdentityOf(nil, &net.UnixAddr{Net: "unix", Name: "a"}), IdentityOf(nil, &net.UnixAddr{Net: "unix"})},
		{IdentityOf(withCertificate(one), tcp("10.0.0.1", 1)), IdentityOf(withCertificate(one), tcp("10.0.0.2", 1)), IdentityOf(clientIdentity{withCertificate(one), nil}, tcp("10.0.0.2", 1))},
		{IdentityOf(withCertificate(two), tcp("10.0.0.1", 1))},
		{IdentityOf(withCertificate(nameless), tcp("10.0.0.1", 1))},
		{IdentityOf(withCertificate(&x509.Certificate{RawSubject: []byte("CN=two")}), tcp("10.0.0.1", 1))},
	} {
		for _, identity := range clients {
			if j, ok := seen[identity]; ok && j != i {
				t.Errorf("client %d has the identity of client %d: %q", i, j, identity)
			}
			if seen[identity] = i; identity != clients[0] {
				t.Errorf("client %d has the identities %q and %q", i, clients[0], identity)
			}
		}
	}
}

// TestCanAccessAny checks clients that may request one domain, all domains, and none.
func TestCanAccessAny(t *testing.T) {
	a := allowList(t, "a.example.com=d", "b.example.com=*")
	for name, want := range map[string]bool{"a.example.com": true, "b.example.com": true, "c.example.com": false} {
		if got := a.Client(certificate(t, name)).CanAccessAny(); got != want {
			t.Errorf("%s may request a domain: %v, want %v", name, got, want)
		}
	}
	if (*Client)(nil).CanAccessAny() {
		t.Error("a client without a certificate may request a domain")
	}
}
