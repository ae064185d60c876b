package envoyconfig

import (
	"fmt"
	"net/netip"
	"strings"
)

// Request is an HTTP request as a client sends it to Envoy.
type Request struct {
	Method, Scheme, Authority string
	// Path has the query too.
	Path    string
	Headers []Header
	// Remote is the address that connects to Envoy; invalid if it is not known.
	Remote netip.Addr
	// Metadata is what filters have set before the rate limit filter, by namespace:path, the
	// steps of a path joined by dots. "" says that there is nothing.
	Metadata map[string]string
	// Listener names one of several that ask. Optional where only one does.
	Listener string

	// Logged is set for a request that an access log tells of. It returns the value of a
	// header, :path and the like among them, as the filters saw it; ok is false if there was
	// none, and unknown says why the log does not tell. It takes the place of Headers.
	Logged func(name string) (value string, ok bool, unknown string)
	// Client is the client's address as Envoy found it (%DOWNSTREAM_REMOTE_ADDRESS%), for a
	// request of a log; invalid if it is not known.
	Client netip.Addr
	// RouteName is the route that Envoy took (%ROUTE_NAME%), "" if it is not known or has no
	// name.
	RouteName string
}

// Header is one line of a request. Its name is in lower case.
type Header struct{ Name, Value string }

// ParseRequest reads a request's first line, written as GET https://shop.example/a?b=c, or
// without a method, which is GET then.
func ParseRequest(line string) (Request, error) {
	wrong := func(why string) (Request, error) {
		return Request{}, fmt.Errorf("request %q: %s: write 'GET https://shop.example/search?q=1'", line, why)
	}
	method, url, ok := strings.Cut(line, " ")
	if !ok {
		method, url = "GET", line
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return wrong("it has no http:// or https://")
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == '#' || r == 0x7f }); i >= 0 {
		return wrong(fmt.Sprintf("%q cannot be sent", rest[i:i+1]))
	}
	authority, path := rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
		if path[0] == '?' {
			path = "/" + path
		}
	}
	if authority == "" || method == "" {
		return wrong("it has no host or no method")
	}
	return Request{Method: method, Scheme: scheme, Authority: authority, Path: path}, nil
}

// ParseHeader reads a header written as name: value.
func ParseHeader(line string) (Header, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || strings.ContainsAny(name, " \t") {
		return Header{}, fmt.Errorf("header %q: write 'name: value'", line)
	}
	if strings.EqualFold(name, "host") {
		return Header{}, fmt.Errorf("header %q: the host stands in the request: http://%s/", line, strings.Trim(value, " \t"))
	}
	return Header{strings.ToLower(name), strings.Trim(value, " \t")}, nil
}
