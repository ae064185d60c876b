package access

import (
	"bytes"
	"crypto/x509"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func allowList(t *testing.T, texts ...string) *AllowList {
	t.Helper()
	a, err := ParseAllowList(texts)
	must.OK(t, err)
	return a
}

// certificate returns a certificate with the given DNS names and URIs.
func certificate(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := new(x509.Certificate)
	for _, name := range names {
		if !strings.Contains(name, ":") {
			c.DNSNames = append(c.DNSNames, name)
			continue
		}
		u, err := url.Parse(name) // as crypto/x509 does
		must.OK(t, err)
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestAllowList(t *testing.T) {
	allow := allowList(t,
		"envoy.example.com=dns,both",
		"Upper.Example.com=upper",
		"spiffe://cluster.local/ns/shop/sa/envoy=exact,both",
		"spiffe://cluster.local/ns/shop/*=shop",
		"spiffe://cluster.local/*=cluster",
		"spiffe://Other.local/sa/*=other",
		"spiffe://admin.local/sa/admin=*",
		"urn:envoy:one=urn",
		"twice.example.com=a", "twice.example.com=b",
	)
	all := []string{"dns", "both", "upper", "exact", "shop", "cluster", "other", "urn", "a", "b", "unheard"}
	for _, tt := range []struct {
		names []string
		want  []string
	}{
		{nil, nil},
		{[]string{"stranger.example.com"}, nil},
		{[]string{"envoy.example.com"}, []string{"dns", "both"}},
		{[]string{"ENVOY.example.COM", "upper.example.com"}, []string{"dns", "both", "upper"}},
		{[]string{"twice.example.com"}, []string{"a", "b"}},
		// Names that only resemble the listed one.
		{[]string{"evil.envoy.example.com", "envoy.example.com.evil.test", "xenvoy.example.com", "*.example.com", "*"}, nil},
		// A DNS name is not a URI, nor the reverse.
		{[]string{"https://envoy.example.com", "spiffe://envoy.example.com"}, nil},

		{[]string{"spiffe://cluster.local/ns/shop/sa/envoy"}, []string{"both", "exact", "shop", "cluster"}},
		{[]string{"SPIFFE://Cluster.Local/ns/shop/sa/envoy"}, []string{"both", "exact", "shop", "cluster"}},
		{[]string{"spiffe://cluster.local/ns/shop/sa/other/deep"}, []string{"shop", "cluster"}},
		{[]string{"spiffe://cluster.local/ns/pay/sa/envoy"}, []string{"cluster"}},
		{[]string{"spiffe://other.local/sa/x"}, []string{"other"}},
		{[]string{"urn:envoy:one"}, []string{"urn"}},
		{[]string{"spiffe://admin.local/sa/admin"}, all},
		// A path is case-sensitive, and a prefix ends where a segment does.
		{[]string{"spiffe://cluster.local/NS/shop/sa/envoy"}, []string{"cluster"}},
		{[]string{"spiffe://cluster.local/ns/shopping/sa/envoy"}, []string{"cluster"}},
		{[]string{"spiffe://cluster.local/ns/shop"}, []string{"cluster"}},
		{[]string{"spiffe://cluster.local"}, nil},
		{[]string{"spiffe://cluster.local/"}, nil},
		{[]string{"spiffe://cluster.local.evil.test/ns/shop/sa/envoy"}, nil},
		{[]string{"spiffe://cluster.local:443/ns/shop/sa/envoy"}, nil},
		{[]string{"spiffe://x@cluster.local/ns/shop/sa/envoy"}, nil},
		{[]string{"https://cluster.local/ns/shop/sa/envoy"}, nil},
		// Paths that only textually start with the prefix.
		{[]string{"spiffe://cluster.local/ns/shop/../pay"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/./x"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop//x"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/%2e%2e/pay"}, nil},
		{[]string{"spiffe://cluster.local/ns%2fshop/sa/envoy"}, nil},
		{[]string{"spiffe://cluster.local/ns/%73hop/sa/envoy"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/sa/envoy?x"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/sa/envoy?"}, nil},
		{[]string{"spiffe://cluster.local/ns/shop/sa/envoy#x"}, nil},
	} {
		c := allow.Client(certificate(t, tt.names...))
		var got []string
		for _, domain := range all {
			if c.CanAccess([]byte(domain)) {
				got = append(got, domain)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("domains of %q (-want +got):\n%s", tt.names, diff)
		}
	}
	if !slices.Equal(allow.Domains(), []string{"a", "b", "both", "cluster", "dns", "exact", "other", "shop", "upper", "urn"}) || !allow.AllowsAnyDomain() {
		t.Errorf("Domains() = %q, AllowsAnyDomain() = %v", allow.Domains(), allow.AllowsAnyDomain())
	}
	if allowList(t, "envoy.example.com=d").AllowsAnyDomain() {
		t.Error("a list without * allows any domain")
	}
	if (*Client)(nil).CanAccess([]byte("dns")) {
		t.Error("a client without a certificate may request a domain")
	}
}

// TestNameKindsShareNoGrant checks that a DNS name spelled like a listed URI, and a URI spelled
// like a listed DNS name, have no grants: an authority that is constrained to some names of one
// kind may issue any names of the other.
func TestNameKindsShareNoGrant(t *testing.T) {
	allow := allowList(t, "envoy.example.com=dns", "spiffe://cluster.local/sa/envoy=uri", "spiffe://cluster.local/ns/*=below")
	for _, cert := range []*x509.Certificate{
		{URIs: []*url.URL{{Path: "envoy.example.com"}}},
		{URIs: []*url.URL{{Opaque: "envoy.example.com"}}},
		{DNSNames: []string{"spiffe://cluster.local/sa/envoy", "spiffe://cluster.local/ns/shop"}},
	} {
		c := allow.Client(cert)
		for _, domain := range []string{"dns", "uri", "below"} {
			if c.CanAccess([]byte(domain)) {
				t.Errorf("a certificate of DNS names %q and URIs %v may request %s", cert.DNSNames, cert.URIs, domain)
			}
		}
	}
}

func TestAllowListErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "must be NAME=DOMAIN",
		"envoy.example.com":                 "must be NAME=DOMAIN",
		"envoy.example.com=":                "must be NAME=DOMAIN",
		"=shop":                             "must be NAME=DOMAIN",
		"envoy.example.com=a,,b":            "a domain is empty",
		"envoy.example.com=a,":              "a domain is empty",
		"*=shop":                            "may only be the last segment of a URI",
		"*.example.com=shop":                "may only be the last segment of a URI",
		"spiffe://cluster.local/*/sa=shop":  "may only be the last segment of a URI",
		"spiffe://cluster.local/ns*=shop":   "may only be the last segment of a URI",
		"spiffe://cluster.local/*/*=shop":   "may only be the last segment of a URI",
		"spiffe:///*=shop":                  "is not a URI",
		"://cluster.local=shop":             "is not a URI",
		"spiffe://cluster local/x=shop":     "is not a URI",
		"envoy.example.com/*=shop":          "neither a DNS name nor a URI",
		"envoy example=shop":                "neither a DNS name nor a URI",
		"spiffe://cluster.local/a/../*=b":   "empty, dotted or escaped segments",
		"spiffe://cluster.local/a//*=b":     "empty, dotted or escaped segments",
		"spiffe://cluster.local/%61/*=b":    "empty, dotted or escaped segments",
		"spiffe://cluster.local/a?b/*=shop": "a query or a fragment",
	} {
		if _, err := ParseAllowList([]string{"good.example.com=shop", text}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `"`+text+`": `) {
			t.Errorf("ParseAllowList(%q) = %v, want %q", text, err, want)
		}
	}
}

func TestClientNamesAreBoundedAndQuoted(t *testing.T) {
	allow := allowList(t, "envoy.example.com=d")
	c := allow.Client(certificate(t, "a\n.test", strings.Repeat("x", 1000)))
	if len(c.names) > 310 || !strings.HasPrefix(c.names, `["a\n.test" "xxx`) {
		t.Errorf("names are %d bytes, %.20s", len(c.names), c.names)
	}
	message := Denied(c, []byte("d\n"+strings.Repeat("y", 1000))).Error()
	if len(message) > 600 || !strings.Contains(message, `domain "d\nyyy`) || strings.Contains(message, "\n") {
		t.Errorf("the error is %q", message)
	}
}

func TestLongDomainIsNotQuotedWhole(t *testing.T) {
	domain := bytes.Repeat([]byte{1}, 4<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	denied := Denied(nil, domain)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 || len(denied.domain) > 200 {
		t.Errorf("the error of a domain of 4 MiB allocates %d bytes and has %d", used, len(denied.domain))
	}
}
