package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Local returns an error if r does not come straight from this machine.
func Local(r *http.Request) error {
	if own := ownAddress(r); !IsLocal(own) || !isUnix(own) && !isLoopback(r.RemoteAddr) {
		return errors.New("counters are for this machine only: ask 127.0.0.1 there, or through kubectl port-forward")
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"} {
		if r.Header.Get(name) != "" {
			return fmt.Errorf("counters are for this machine only, not for what a proxy forwards (header %s)", name)
		}
	}
	return hostFault(r)
}

// FromOtherSite returns an error if a browser sent r for a web page of another site. Such a page may name this
// machine, or have had its own name point here (DNS rebinding); then the Host gives it away. Links from other sites
// may be followed.
func FromOtherSite(r *http.Request) error {
	header := r.Header
	if header.Get("Sec-Fetch-Site") == "cross-site" && header.Get("Sec-Fetch-Mode") != "navigate" {
		return errors.New("a web page of another site sent this request")
	}
	return hostFault(r)
}

// hostFault returns an error if r came to a loopback address or a unix socket under a name that is not loopback.
func hostFault(r *http.Request) error {
	if IsLocal(ownAddress(r)) && !NamesLoopback(r.Host) {
		return fmt.Errorf("host %.100q: must be localhost or a loopback address", r.Host)
	}
	return nil
}

// ownAddress returns the address of the listener that accepted the connection of r, or nil.
func ownAddress(r *http.Request) net.Addr {
	own, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return own
}

// IsLocal reports whether addr can be reached from this machine alone.
func IsLocal(addr net.Addr) bool { return isUnix(addr) || addr != nil && isLoopback(addr.String()) }

func isUnix(addr net.Addr) bool {
	_, ok := addr.(*net.UnixAddr)
	return ok
}

// NamesLoopback reports whether host, maybe with a port, is localhost or a loopback address.
func NamesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// isLoopback reports whether addr, an IP address and a port, is loopback.
func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}
