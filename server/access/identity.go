package access

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
)

// IdentityOf names the client of a connection, so that bounds can be divided among clients: by its certificate if it has
// shown one, else by its address as [AddressOf] returns it. All clients of a Unix socket have one name, and so have all clients
// behind a proxy or an address translation, and all that share a certificate's names.
func IdentityOf(info credentials.AuthInfo, addr net.Addr) string {
	if cert := certificateOf(info); cert != nil {
		if len(cert.DNSNames)+len(cert.URIs) > 0 {
			return fmt.Sprintf("names %q %q", cert.DNSNames, cert.URIs)
		}
		return "subject " + string(cert.RawSubject)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return "address " + AddressOf(tcp.AddrPort().Addr()).String()
	}
	return "network " + addr.Network()
}

// AddressOf returns the address by which a client is known where bounds are divided among clients: an IPv4 address, or
// the first half of an IPv6 address, since a client has all addresses with the same half.
func AddressOf(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if half, err := ip.Prefix(64); err == nil {
			return half.Masked().Addr()
		}
	}
	return ip
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
