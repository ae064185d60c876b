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

// AllowList lists the domains that each client may request, by the names in the clients'
// certificates. A client that is not listed may request no domain. An AllowList never changes, and
// its methods may be called concurrently.
type AllowList struct {
	// exact contains the grants of DNS names and URIs. Only URIs contain a colon.
	exact map[string]*grant
	// prefixes contains the grants of names that end in /*, by the part before the star.
	prefixes map[string]*grant
}

// grant is the set of domains that a client may request.
type grant struct {
	anyDomain bool
	domains   map[string]struct{}
}

func (g *grant) add(other *grant) {
	g.anyDomain = g.anyDomain || other.anyDomain
	maps.Copy(g.domains, other.domains)
}

// ParseAllowList parses texts of the form NAME=DOMAIN[,DOMAIN...]. NAME is a DNS name or a URI of a
// certificate. A URI that ends in /* matches all URIs with this prefix and at least one more
// segment. The domain * stands for all domains. The grants of a name that is given several times
// are added up.
func ParseAllowList(texts []string) (*AllowList, error) {
	a := &AllowList{exact: map[string]*grant{}, prefixes: map[string]*grant{}}
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
			g.anyDomain = true
		default:
			g.domains[domain] = struct{}{}
		}
	}
	grants := a.exact
	stem, isPrefix := strings.CutSuffix(name, "/*")
	if isPrefix {
		grants = a.prefixes
		name = stem + "/"
	}
	name, err := canonicalName(name, isPrefix)
	if err != nil {
		return err
	}
	if grants[name] == nil {
		grants[name] = &grant{domains: map[string]struct{}{}}
	}
	grants[name].add(g)
	return nil
}

// canonicalName checks a name and returns the form in which [AllowList.Client] looks it up.
func canonicalName(name string, isPrefix bool) (string, error) {
	if strings.Contains(name, "*") {
		return "", errors.New("a * may only be the last segment of a URI, as in spiffe://cluster.local/ns/shop/*")
	}
	if !strings.Contains(name, ":") {
		if isPrefix || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return "", fmt.Errorf("%q is neither a DNS name nor a URI, such as envoy.example.com or spiffe://cluster.local/ns/shop/sa/envoy", name)
		}
		return strings.ToLower(name), nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Scheme == "" || isPrefix && u.Host == "" {
		return "", fmt.Errorf("%q is not a URI, such as spiffe://cluster.local/ns/shop/sa/envoy", name)
	}
	// The last slash belongs to the /*, so no empty segment follows it.
	if isPrefix && (u.RawQuery != "" || u.Fragment != "" || !isPlainPath(strings.TrimSuffix(u.EscapedPath(), "/"))) {
		return "", fmt.Errorf("%q has empty, dotted or escaped segments, a query or a fragment: must be segments that end in /*", name)
	}
	return canonicalURI(u), nil
}

// canonicalURI returns a URI with its scheme and host in lower case.
func canonicalURI(u *url.URL) string {
	c := *u
	c.Host = strings.ToLower(c.Host) // url.Parse has converted the scheme
	return c.String()
}

// isPlainPath reports whether all segments of a path are plain, as SPIFFE requires. Otherwise
// /a/../b would match /a/*.
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

// Client returns the client with the given certificate. It may request the domains of all its
// names.
func (a *AllowList) Client(cert *x509.Certificate) *Client {
	c := &Client{grant: grant{domains: map[string]struct{}{}}}
	var names []string
	add := func(g *grant) {
		if g != nil {
			c.add(g)
		}
	}
	for _, name := range cert.DNSNames {
		names = append(names, name)
		if !strings.Contains(name, ":") { // otherwise it could equal a URI of the list
			add(a.exact[strings.ToLower(name)])
		}
	}
	for _, u := range cert.URIs {
		name := canonicalURI(u)
		names = append(names, name)
		if u.Scheme == "" { // the name could equal a DNS name of the list
			continue
		}
		add(a.exact[name])
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !isPlainPath(u.EscapedPath()) {
			continue
		}
		for i := range len(name) - 1 { // no segment follows a slash at the end
			if name[i] == '/' {
				add(a.prefixes[name[:i+1]])
			}
		}
	}
	c.names = "no name that is a DNS name or a URI"
	if len(names) > 0 {
		c.names = truncate(fmt.Sprintf("%q", names), 300)
	}
	return c
}

// union returns the domains that are granted to any client.
func (a *AllowList) union() grant {
	all := grant{domains: map[string]struct{}{}}
	for _, grants := range []map[string]*grant{a.exact, a.prefixes} {
		for _, g := range grants {
			all.add(g)
		}
	}
	return all
}

// Domains returns the sorted names of all granted domains.
func (a *AllowList) Domains() []string { return slices.Sorted(maps.Keys(a.union().domains)) }

// AllowsAnyDomain reports whether some client may request all domains.
func (a *AllowList) AllowsAnyDomain() bool { return a.union().anyDomain }
