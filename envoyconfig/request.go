package envoyconfig

import (
	"fmt"
	"net/netip"
	"strings"
)

// Request is an HTTP request as a client sends it to Envoy.
type Request struct {
	Method, Scheme, Authority string
	// Path includes the query string.
	Path    string
	Headers []Header
	// Remote is the address of the peer that connects to Envoy; invalid if unknown.
	Remote netip.Addr
	// Metadata is the dynamic metadata that filters set before the rate limit filter. Keys have the form
	// namespace:path, with the path segments joined by dots; an empty value means that the key is not set.
	Metadata map[string]string
	// Listener selects one of several listeners with rate limits. It is optional if only one has them.
	Listener string

	// Logged replaces Headers for a request from an access log. It returns the value of a header or pseudo-header
	// such as :path as the filters saw it. ok is false if the header was absent; unknown is the reason why the log
	// does not contain it.
	Logged func(name string) (value string, ok bool, unknown string)
	// Client is the client's address as determined by Envoy (%DOWNSTREAM_REMOTE_ADDRESS%), for a logged request;
	// invalid if unknown.
	Client netip.Addr
	// RouteName is the name of the route that Envoy chose (%ROUTE_NAME%); empty if unknown or without a name.
	RouteName string
}

// Header is a header of a request. Name is in lower case.
type Header struct{ Name, Value string }

// ParseRequest parses a request such as "GET https://shop.example/a?b=c". The method defaults to GET.
func ParseRequest(line string) (Request, error) {
	wrong := func(why string) (Request, error) {
		return Request{}, fmt.Errorf("request %q: %s: write 'GET https://shop.example/search?q=1'", line, why)
	}
	method, url, ok := strings.Cut(line, " ")
	if !ok {
		method = "GET"
		url = line
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return wrong("the URL has no http:// or https://")
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == '#' || r == 0x7f }); i >= 0 {
		return wrong(fmt.Sprintf("%q cannot be sent", rest[i:i+1]))
	}
	authority := rest
	path := "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
		path = rest[i:]
		if path[0] == '?' {
			path = "/" + path
		}
	}
	if authority == "" || method == "" {
		return wrong("the host or the method is missing")
	}
	return Request{Method: method, Scheme: scheme, Authority: authority, Path: path}, nil
}

// ParseHeader parses "name: value".
func ParseHeader(line string) (Header, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || strings.ContainsAny(name, " \t") {
		return Header{}, fmt.Errorf("header %q: write 'name: value'", line)
	}
	if strings.EqualFold(name, "host") {
		return Header{}, fmt.Errorf("header %q: set the host in the URL: http://%s/", line, strings.Trim(value, " \t"))
	}
	return Header{strings.ToLower(name), strings.Trim(value, " \t")}, nil
}
