package accesslog

import (
	"bytes"
	"slices"
	"time"
)

// fieldAliases maps a field to its names in logs of Envoy, Envoy Gateway, Istio and nginx, the
// preferred one first. Other fields have their own name only.
var fieldAliases = map[string][]string{
	// Envoy queries the service when a request starts, so the start time comes first.
	fieldTime:      {"start_time", fieldTime, "time_iso8601", "msec", "time_local", "@timestamp", "timestamp", "ts"},
	fieldStatus:    {fieldStatus, "response_code", "status_code"},
	fieldFlags:     {fieldFlags, "response_flags"},
	":method":      {":method", "method", "request_method", requestLine},
	":path":        {":path", "x-envoy-origin-path", "path", "request_uri", requestLine, "uri"},
	":authority":   {":authority", "authority", "http_host", "host", "server_name", requestLine},
	":scheme":      {":scheme", "scheme"},
	"protocol":     {"protocol", "server_protocol", requestLine},
	FieldRemote:    {FieldRemote, "remote_addr", "client_ip"},
	FieldDirect:    {FieldDirect, "realip_remote_addr"},
	FieldDuration:  {FieldDuration, "request_time"},
	"user-agent":   {"user-agent", "user_agent", "http_user_agent"},
	"x-request-id": {"x-request-id", "request_id"},
}

// durationUnits are the units of the duration fields.
var durationUnits = map[string]time.Duration{FieldDuration: time.Millisecond, "request_time": time.Second}

// requestLine is the field with method, path and protocol, such as GET / HTTP/1.1.
const requestLine = "request"

// requestParts extracts fields from a request line.
var requestParts = map[string]func(line []byte) []byte{
	":method":    func(line []byte) []byte { return cutRequest(line).method },
	":path":      func(line []byte) []byte { return cutRequest(line).path },
	":authority": func(line []byte) []byte { return cutRequest(line).authority },
	"protocol":   func(line []byte) []byte { return cutRequest(line).protocol },
}

// cutURL splits a URL before its path. A URL that starts with a slash is a path.
func cutURL(url []byte) (authority, path []byte) {
	i := bytes.Index(url, []byte("://"))
	if i <= 0 || url[0] == '/' {
		return nil, url
	}
	rest := url[i+3:]
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		return rest, []byte("/")
	}
	return rest[:end], rest[end:]
}

type request struct{ method, authority, path, protocol []byte }

// cutRequest splits a request line. An invalid one, as scanners send, has no parts.
func cutRequest(line []byte) (r request) {
	method, target, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(method) == 0 || slices.ContainsFunc(method,
		func(c byte) bool { return (c < 'A' || c > 'Z') && c != '-' || method[0] == '-' }) {
		return r
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target, r.protocol = target[:i], target[i+1:]
	}
	r.method = method
	r.authority, r.path = cutURL(target) // a URL in requests to a proxy
	return r
}

// Fields used by the simulation. A header's field is its name in lower case; fields of other
// operators are named like the operator.
const (
	FieldMetadata = "metadata"
	FieldRemote   = "downstream_remote_address"
	FieldDirect   = "downstream_direct_remote_address"
	FieldRoute    = "route_name"
	FieldXFF      = "x-forwarded-for"
	// FieldDuration is the duration of a request, in the unit of [Format.DurationUnit].
	FieldDuration = "duration"

	fieldTime   = "time"
	fieldStatus = "status"
	fieldFlags  = "flags"
)

// RateLimitMetadata is the namespace of the rate limit filter's dynamic metadata.
const RateLimitMetadata = "envoy.filters.http.ratelimit"
