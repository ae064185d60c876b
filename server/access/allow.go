package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// AllowList says which clients may ask for which domains, by the names in their certificates. A
// client that is not on it may ask for none. It never changes, and its methods may be called
// concurrently.
type AllowList struct {
	// exact has the grants of DNS names and of URIs: these contain a colon, and those do not.
	exact map[string]*grant
	// below has the grants of names that end in /*, by the part before the star.
	below map[string]*grant
}

// grant is a set of domains.
type grant struct {
	any     bool
	domains map[string]struct{}
}

func (g *grant) add(other *grant) {
	g.any = g.any || other.any
	maps.Copy(g.domains, other.domains)
}

// ParseAllowList reads each text as NAME=DOMAIN[,DOMAIN...]. NAME is a DNS name or a URI of a
// certificate. A URI that ends in /* stands for all URIs that begin with it and have one more
// segment at least. The domain * is any domain. A name that is given twice may ask for the
// domains of both.
func ParseAllowList(texts []string) (*AllowList, error) {
	a := &AllowList{exact: map[string]*grant{}, below: map[string]*grant{}}
	for _, text := range texts {
		if err := a.parse(text); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	return a, nil
}

func (a *AllowList) parse(text string) error {
	name, list, ok := strings.Cut(text, "=")
	if !ok || name == "" || list == "" {
		return errors.New("must be NAME=DOMAIN[,DOMAIN...], such as spiffe://cluster.local/ns/shop/sa/envoy=shop")
	}
	g := &grant{domains: map[string]struct{}{}}
	for domain := range strings.SplitSeq(list, ",") {
		switch domain {
		case "":
			return errors.New("a domain is empty: must be the names of domains, or * for any, between single commas")
		case "*":
			g.any = true
		default:
			g.domains[domain] = struct{}{}
		}
	}
	to := a.exact
	stem, below := strings.CutSuffix(name, "/*")
	if below {
		to, name = a.below, stem+"/"
	}
	name, err := allowedName(name, below)
	if err != nil {
		return err
	}
	if to[name] == nil {
		to[name] = &grant{domains: map[string]struct{}{}}
	}
	to[name].add(g)
	return nil
}

// allowedName returns a name in the form in which certificates are compared with it.
func allowedName(name string, below bool) (string, error) {
	if strings.Contains(name, "*") {
		return "", errors.New("a * may only be the last segment of a URI, as in spiffe://cluster.local/ns/shop/*")
	}
	if !strings.Contains(name, ":") {
		if below || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return "", fmt.Errorf("%q is neither a DNS name nor a URI, such as envoy.example.com or spiffe://cluster.local/ns/shop/sa/envoy", name)
		}
		return strings.ToLower(name), nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Scheme == "" || below && u.Host == "" {
		return "", fmt.Errorf("%q is no URI, such as spiffe://cluster.local/ns/shop/sa/envoy", name)
	}
	// The last slash belongs to the /*, so no empty segment follows it.
	if below && (u.RawQuery != "" || u.Fragment != "" || !isPlainPath(strings.TrimSuffix(u.EscapedPath(), "/"))) {
		return "", fmt.Errorf("%q has empty, dotted or escaped segments, a query or a fragment: must be segments that end in /*", name)
	}
	return canonicalURI(u), nil
}

// canonicalURI writes a URI with its scheme and host in lower case.
func canonicalURI(u *url.URL) string {
	c := *u
	c.Host = strings.ToLower(c.Host) // Parse has done the scheme
	return c.String()
}

// isPlainPath reports whether a path has plain segments only, as SPIFFE requires. Without this
// check, /a/../b would count as below /a/.
func isPlainPath(path string) bool {
	if path == "" {
		return true
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." || strings.Contains(segment, "%") {
			return false
		}
	}
	return true
}

// Client returns the client of a certificate. It may ask for what any of its names may.
func (a *AllowList) Client(cert *x509.Certificate) *Client {
	c := &Client{grant: grant{domains: map[string]struct{}{}}}
	var names []string
	take := func(g *grant) {
		if g != nil {
			c.add(g)
		}
	}
	for _, name := range cert.DNSNames {
		names = append(names, name)
		if !strings.Contains(name, ":") { // otherwise it could be spelt as a URI of the list
			take(a.exact[strings.ToLower(name)])
		}
	}
	for _, u := range cert.URIs {
		name := canonicalURI(u)
		names = append(names, name)
		if u.Scheme == "" { // it could be spelt as a DNS name of the list
			continue
		}
		take(a.exact[name])
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !isPlainPath(u.EscapedPath()) {
			continue
		}
		for i := range len(name) - 1 { // a slash at the end has nothing below it
			if name[i] == '/' {
				take(a.below[name[:i+1]])
			}
		}
	}
	c.names = "no name that is a DNS name or a URI"
	if len(names) > 0 {
		c.names = shortened(fmt.Sprintf("%q", names), 300)
	}
	return c
}

// all returns what is granted to anybody.
func (a *AllowList) all() grant {
	all := grant{domains: map[string]struct{}{}}
	for _, grants := range []map[string]*grant{a.exact, a.below} {
		for _, g := range grants {
			all.add(g)
		}
	}
	return all
}

// Domains returns all domains that are granted by name, sorted.
func (a *AllowList) Domains() []string { return slices.Sorted(maps.Keys(a.all().domains)) }

// Open reports whether a client may ask for any domain.
func (a *AllowList) Open() bool { return a.all().any }
