package accesslog

import (
	"bytes"
	"slices"
	"time"
)

// otlpTime is what OpenTelemetry calls the time.
const otlpTime = "timeUnixNano"

// otherNames are what a field is called in logs, the best name first: in those of Envoy Gateway,
// Istio, OpenTelemetry, nginx, Caddy, Traefik, HAProxy, AWS and in the W3C's format. A field that
// is not here has its own name only.
var otherNames = map[string][]string{
	// When a request began is what Envoy asks at, so that is better than when it ended.
	fieldTime: {
		"start_time", "StartUTC", "request_creation_time", fieldTime, otlpTime, "time_iso8601", "msec", "time_local", "accept_date",
		"@timestamp", "timestamp", "datetime", "ts",
	},
	fieldStatus:  {fieldStatus, "response_code", "DownstreamStatus", "elb_status_code", "sc-status", "status_code", "response.status"},
	fieldFlags:   {fieldFlags, "response_flags"},
	":method":    {":method", "method", "request_method", "RequestMethod", "request.method", "cs-method", "verb", requestLine},
	":path":      {":path", "x-envoy-origin-path", "path", "request_uri", "RequestPath", caddyPath, requestLine, "uri", "url", "cs-uri-stem"},
	":authority": {":authority", "authority", "http_host", "RequestHost", "request.host", "x-host-header", "cs(Host)", "host", "server_name", requestLine},
	":scheme":    {":scheme", "scheme", "RequestScheme", "cs-protocol"},
	"protocol":   {"protocol", "server_protocol", "RequestProtocol", "request.proto", "cs-protocol-version", requestLine},
	FieldRemote: {
		FieldRemote, "remote_addr", "client_ip", "clientip", "ClientHost", "request.client_ip", "request.remote_ip", "remote_ip", "c-ip", "client",
		"ClientAddr",
	},
	// Caddy's duration is another one than Envoy's.
	FieldDuration:  {FieldDuration, "request_time", "Duration"},
	FieldDirect:    {FieldDirect, "request.remote_ip", "realip_remote_addr"},
	"user-agent":   {"user-agent", "user_agent", "http_user_agent", "agent"},
	"x-request-id": {"x-request-id", "request_id"},
}

// durationUnits are in which unit servers say how long a request took, by what they call it.
var durationUnits = map[string]time.Duration{FieldDuration: time.Millisecond, "request_time": time.Second, "Duration": time.Nanosecond}

// headerNames are what servers call the header NAME, whose case and dashes they change.
var headerNames = []string{"NAME", "http_NAME", "request_NAME", "request.headers.NAME", "cs(NAME)"}

// namesOf returns what a field may be called.
func namesOf(name string) []string {
	if names := otherNames[name]; names != nil {
		return names
	}
	return []string{name}
}

// caddyPath tells a log of Caddy's.
const caddyPath = "request.uri"

// requestLine is the field that has method, path and protocol in one, as in GET / HTTP/1.1.
const requestLine = "request"

// requestParts are the fields that a request line has, by their names.
var requestParts = map[string]func(line []byte) []byte{
	":method":    func(line []byte) []byte { return cutRequest(line).method },
	":path":      func(line []byte) []byte { return cutRequest(line).path },
	":authority": func(line []byte) []byte { return cutRequest(line).authority },
	"protocol":   func(line []byte) []byte { return cutRequest(line).protocol },
}

type request struct{ method, authority, path, protocol []byte }

// cutRequest cuts a request line. One that is none, as scanners send, has no parts.
func cutRequest(line []byte) (r request) {
	method, target, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(method) == 0 || slices.ContainsFunc(method, func(c byte) bool { return (c < 'A' || c > 'Z') && c != '-' || method[0] == '-' }) {
		return r
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target, r.protocol = target[:i], target[i+1:]
	}
	r.method, r.path = method, target
	if i := bytes.Index(target, []byte("://")); i > 0 && target[0] != '/' { // as to a proxy, and in logs of AWS
		rest := target[i+3:]
		end := bytes.IndexAny(rest, "/?")
		if end < 0 {
			r.authority, r.path = rest, []byte("/")
			return r
		}
		r.authority, r.path = rest[:end], rest[end:]
	}
	return r
}
