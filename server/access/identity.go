package access

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
)

// IdentityOf returns a name for the client of a connection. Resources are divided among clients by
// this name. It comes from the client's certificate or, without one, from its address (see
// [AddressOf]). All clients of a Unix socket have the same name. So do all clients behind one proxy
// or NAT, and all clients whose certificates contain the same names.
func IdentityOf(info credentials.AuthInfo, addr net.Addr) string {
	if cert := certificateOf(info); cert != nil {
		if len(cert.DNSNames)+len(cert.URIs) > 0 {
			return fmt.Sprintf("names %q %q", cert.DNSNames, cert.URIs)
		}
		return "subject " + string(cert.RawSubject)
	}
	if ip := AddressOfPeer(addr); ip.IsValid() {
		return "address " + ip.String()
	}
	return "network " + addr.Network()
}

// AddressOfPeer returns [AddressOf] for a TCP address. It is the zero Addr for all clients of a Unix
// socket.
func AddressOfPeer(addr net.Addr) netip.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return AddressOf(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// AddressOf returns the address that identifies a client: an IPv4 address, or the /64 prefix of an
// IPv6 address, because a client can usually use all addresses of its prefix.
func AddressOf(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.Masked().Addr()
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
