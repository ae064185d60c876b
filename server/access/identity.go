package access

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
)

// IdentityOf returns a name for the client of a connection, by which bounds are divided among
// clients: from its certificate if it has one, else its address as [AddressOf] returns it. All
// clients of a Unix socket have the same name, as do all clients behind one proxy or NAT, and all
// clients whose certificates have the same names.
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

// AddressOf returns the address by which bounds are divided among clients: an IPv4 address, or the
// /64 prefix of an IPv6 address, because a client usually has all addresses of its prefix.
func AddressOf(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if half, err := ip.Prefix(64); err == nil {
			return half.Masked().Addr()
		}
	}
	return ip
}

// certificateOf returns the client's certificate, or nil if it has sent none.
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
