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

// exchange is a request on its way through a connection manager.
type exchange struct {
	Request

	config  *Config
	manager *manager
	route   *route
}

// given returns the values of a header as the client sends it.
func (x *exchange) given(name string) []string {
	var values []string
	if x.Logged != nil {
		if value, ok, _ := x.Logged(name); ok {
			values = append(values, value)
		}
		return values
	}
	for _, h := range x.Headers {
		if h.Name == name {
			values = append(values, h.Value)
		}
	}
	return values
}

// header returns the values of a header that the filters see. Where the connection manager
// writes it itself, and the value cannot be computed, unknown says so.
func (x *exchange) header(name string) (values []string, unknown string) {
	m := x.manager.node
	const sets = "Envoy sets it"
	if x.Logged != nil && !strings.HasPrefix(name, "x-envoy-") {
		if name == "host" {
			name = ":authority"
		}
		return x.given(name), x.unlogged(name)
	}
	switch name {
	case ":method":
		return []string{x.Method}, ""
	case ":authority", "host":
		if m.field("strip_any_host_port").yes(false) || m.field("strip_matching_host_port").yes(false) || m.field("strip_trailing_host_dot").yes(false) {
			return nil, "Envoy strips it"
		}
		return []string{x.Authority}, ""
	case ":path":
		return []string{x.Path}, x.pathUnknown()
	case ":scheme", "x-forwarded-proto":
		if len(x.given("x-forwarded-proto")) > 0 {
			return nil, "whether Envoy believes x-forwarded-proto depends on who sends it"
		}
		return []string{x.Scheme}, ""
	case "x-forwarded-for":
		if m.field("use_remote_address").yes(false) && !m.field("skip_xff_append").yes(false) {
			return nil, sets
		}
	case "x-request-id", "x-forwarded-client-cert", "connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "expect":
		return nil, sets
	case "x-forwarded-port", "via":
		if m.field("append_x_forwarded_port").yes(false) || m.field("via").there() {
			return nil, sets
		}
	case "user-agent":
		if m.field("add_user_agent").yes(false) {
			return nil, sets
		}
	}
	if strings.HasPrefix(name, "x-envoy-") {
		return nil, sets
	}
	action := m.at("common_http_protocol_options", "headers_with_underscores_action").enum("ALLOW", "REJECT_REQUEST", "DROP_HEADER")
	if strings.Contains(name, "_") && action != "ALLOW" {
		return nil, "headers_with_underscores_action is " + action
	}
	return x.given(name), ""
}

// unlogged says why the log does not tell a header; empty if it does, and where the request
// is not of a log.
func (x *exchange) unlogged(name string) string {
	if x.Logged == nil {
		return ""
	}
	_, _, unknown := x.Logged(name)
	return unknown
}

// pathUnknown says why the path that filters see is not known: the connection manager may
// write it in another way. Paths that are in their normal form already stay as they are.
func (x *exchange) pathUnknown() string {
	m := x.manager.node
	if x.Logged != nil {
		return x.unlogged(":path")
	}
	path := x.pathOnly()
	if m.field("merge_slashes").yes(false) && strings.Contains(path, "//") {
		return "merge_slashes changes this path"
	}
	if action := m.field("path_with_escaped_slashes_action").enum("IMPLEMENTATION_SPECIFIC_DEFAULT", "KEEP_UNCHANGED"); action != "IMPLEMENTATION_SPECIFIC_DEFAULT" && action != "KEEP_UNCHANGED" {
		for _, escaped := range []string{"%2f", "%2F", "%5c", "%5C"} {
			if strings.Contains(path, escaped) {
				return "path_with_escaped_slashes_action changes this path"
			}
		}
	}
	if m.field("path_normalization_options").there() {
		return "path_normalization_options may change it"
	}
	if m.field("normalize_path").yes(false) && !isNormal(path) {
		return "normalize_path changes this path"
	}
	return ""
}

// isNormal reports whether normalize_path leaves a path as it is: it has neither . nor ..,
// and nothing that would be written as %XX or be decoded.
func isNormal(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	return strings.Trim(path, "/-._~!$&'()*+,;=:@0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func (x *exchange) pathOnly() string {
	path, _, _ := strings.Cut(x.Path, "?")
	return path
}

// remote returns the client's address as Envoy finds it.
func (x *exchange) remote() (a netip.Addr, unknown string) {
	m := x.manager.node
	if m.field("original_ip_detection_extensions").there() {
		return a, "original_ip_detection_extensions find it"
	}
	if x.Client.IsValid() {
		return x.Client, ""
	}
	if unknown = x.unlogged("x-forwarded-for"); unknown != "" {
		return a, unknown
	}
	hops := m.field("xff_num_trusted_hops").uint(0)
	trusted := true
	forwarded := strings.Join(x.given("x-forwarded-for"), ",")
	if x.Logged != nil && m.field("use_remote_address").yes(false) && !m.field("skip_xff_append").yes(false) {
		// The log has the header with the address that Envoy appended.
		i := strings.LastIndexByte(forwarded, ',')
		if direct, err := netip.ParseAddr(strings.Trim(forwarded[i+1:], " \t")); err == nil {
			x.Remote = direct
			forwarded = forwarded[:max(0, i)]
		}
	}
	if m.field("use_remote_address").yes(false) {
		// The nearest of the trusted proxies is the one that connects.
		trusted = hops > 0
		hops = max(hops, 1) - 1
	}
	if trusted {
		if a, ok := fromForwarded(forwarded, hops); ok {
			return a, ""
		}
	}
	if !x.Remote.IsValid() && x.Logged != nil {
		return a, "the log does not tell it: add %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% to its format"
	}
	if !x.Remote.IsValid() {
		return a, "--remote ADDRESS says who connects to Envoy"
	}
	return x.Remote, ""
}

// fromForwarded returns the last address of x-forwarded-for but skip.
func fromForwarded(value string, skip uint64) (netip.Addr, bool) {
	for ; skip > 0; skip-- {
		i := strings.LastIndexByte(value, ',')
		if i < 0 {
			return netip.Addr{}, false
		}
		value = value[:i]
	}
	a, err := netip.ParseAddr(strings.Trim(value[strings.LastIndexByte(value, ',')+1:], " \t"))
	return a, err == nil && a.Zone() == ""
}

// query is the parameters of a request.
type query struct {
	names, values []string
	unknown       string
}

func (q query) first(name string) (string, bool) {
	for i := range q.names {
		if q.names[i] == name {
			return q.values[i], true
		}
	}
	return "", false
}

// rawQuery returns the query's parameters as they are sent.
func (x *exchange) rawQuery() query {
	q := query{unknown: x.unlogged(":path")}
	_, text, ok := strings.Cut(x.Path, "?")
	if !ok {
		return q
	}
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		q.names, q.values = append(q.names, name), append(q.values, value)
	}
	return q
}

// decodedQuery returns the query's parameters with %XX decoded.
func (x *exchange) decodedQuery() query {
	q := x.rawQuery()
	for i := range q.names {
		q.names[i], q.values[i] = decodePercent(q.names[i]), decodePercent(q.values[i])
	}
	return q
}

// decodePercent decodes %XX where XX are digits.
func decodePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if high, low := hexDigit(s[i+1]), hexDigit(s[i+2]); high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low)) //nolint:gosec // both below 16
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// hexDigit returns the value of a digit, -1 of anything else.
func hexDigit(c byte) int {
	i := strings.IndexByte("0123456789abcdefABCDEF", c)
	if i > 15 {
		i -= 6
	}
	return i
}
