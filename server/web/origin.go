package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// CheckLocal returns an error unless r comes from this machine and was not forwarded by a proxy.
func CheckLocal(r *http.Request) error {
	if local := localAddress(r); !IsLocalAddress(local) || !isUnix(local) && !isLoopback(r.RemoteAddr) {
		return errors.New("only available from this machine: connect to 127.0.0.1 there, or use kubectl port-forward")
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"} {
		if r.Header.Get(name) != "" {
			return fmt.Errorf("only available from this machine, not through a proxy (header %s)", name)
		}
	}
	return CheckHost(r)
}

// CheckCrossSite returns an error if a browser sent r for a web page of another site. It allows
// links from other sites, but not frames, which load without a click.
func CheckCrossSite(r *http.Request) error {
	header := r.Header
	frame := header.Get("Sec-Fetch-Dest") != "" && header.Get("Sec-Fetch-Dest") != "document"
	link := header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet && !frame
	if header.Get("Sec-Fetch-Site") == "cross-site" && !link {
		return errors.New("a web page of another site sent this request")
	}
	return nil
}

// CheckHost returns an error if r was sent to a loopback address or a Unix socket with a Host that
// is not a loopback name. Such a Host reveals DNS rebinding: the name of a web page resolves to this
// machine.
func CheckHost(r *http.Request) error {
	if IsLocalAddress(localAddress(r)) && !IsLoopbackHost(r.Host) {
		return fmt.Errorf("host %.100q: must be localhost or a loopback address", r.Host)
	}
	return nil
}

// localAddress returns the local address of the connection of r, or nil.
func localAddress(r *http.Request) net.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local
}

// IsLocalAddress reports whether addr can only be reached from this machine.
func IsLocalAddress(addr net.Addr) bool {
	return isUnix(addr) || addr != nil && isLoopback(addr.String())
}

func isUnix(addr net.Addr) bool {
	_, ok := addr.(*net.UnixAddr)
	return ok
}

// IsLoopbackHost reports whether host, with or without a port, is localhost or a loopback address.
func IsLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// isLoopback reports whether addr, an IP address with a port, is a loopback address.
func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}
