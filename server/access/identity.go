package access

import (
	"crypto/x509"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// IdentityOf names the client of a connection, so that bounds can be divided among clients: by its certificate if it has
// shown one, else by its address without the port. All clients of a Unix socket have one name, and so have all clients
// behind a proxy or an address translation, and all that share a certificate's names.
func IdentityOf(info credentials.AuthInfo, addr net.Addr) string {
	if cert := certificateOf(info); cert != nil {
		if len(cert.DNSNames)+len(cert.URIs) > 0 {
			return fmt.Sprintf("names %q %q", cert.DNSNames, cert.URIs)
		}
		return "subject " + string(cert.RawSubject)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return "address " + tcp.AddrPort().Addr().Unmap().String()
	}
	return "network " + addr.Network()
}

// certificateOf returns the certificate that the client has shown in its handshake, nil if it has shown none.
func certificateOf(info credentials.AuthInfo) *x509.Certificate {
	if i, ok := info.(clientIdentity); ok {
		info = i.TLSInfo
	}
	secure, ok := info.(credentials.TLSInfo)
	if !ok || len(secure.State.PeerCertificates) == 0 {
		return nil
	}
	return secure.State.PeerCertificates[0]
}
