package access

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// FuzzAllowList parses arbitrary URIs of certificates and compares the granted domains with a
// simple implementation of SPIFFE's rules: scheme and trust domain are case-insensitive, and
// complete segments are compared.
func FuzzAllowList(f *testing.F) {
	allow, err := ParseAllowList([]string{"spiffe://td.test/ns/shop/*=below", "spiffe://td.test/ns/shop/sa/envoy=exact"})
	must.OK(f, err)
	for _, uri := range []string{
		"spiffe://td.test/ns/shop/sa/envoy", "SPIFFE://TD.test/ns/shop/x", "spiffe://td.test/ns/shop/../x",
		"spiffe://td.test/ns/shop/%2e%2e/x", "spiffe://td.test//ns/shop/x", "spiffe:/td.test/ns/shop/x", "spiffe:td.test/ns/shop/x",
		"spiffe://u@td.test:1/ns/shop/x?q#f", "//td.test/ns/shop/x", "spiffe://td.test/ns/shop/", "spiffe://[::1%25td.test]/ns/shop/x",
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		u, err := url.Parse(uri) // as crypto/x509 does
		if err != nil {
			return
		}
		c := allow.Client(&x509.Certificate{URIs: []*url.URL{u}})
		const root = "spiffe://td.test/"
		hasRoot := len(uri) > len(root) && strings.EqualFold(uri[:len(root)], root)
		var segments []string
		if hasRoot {
			segments = strings.Split(uri[len(root):], "/")
		}
		plain := !slices.ContainsFunc(segments, func(s string) bool {
			return s == "" || s == "." || s == ".." || strings.ContainsAny(s, "%?#")
		})
		below := hasRoot && plain && len(segments) > 2 && segments[0] == "ns" && segments[1] == "shop"
		if got := c.CanAccess([]byte("below")); got && !below {
			t.Errorf("%q may request the domain of the prefix", uri)
		} else if !got && below && u.EscapedPath() == u.Path {
			t.Errorf("%q may not request the domain of the prefix", uri)
		}
		if exact := below && slices.Equal(segments[2:], []string{"sa", "envoy"}); c.CanAccess([]byte("exact")) != exact {
			t.Errorf("%q may request the domain of the exact name: %v, want %v", uri, !exact, exact)
		}
		if c.CanAccess([]byte("other")) {
			t.Errorf("%q may request a domain that is not listed", uri)
		}
	})
}
