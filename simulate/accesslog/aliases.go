package accesslog

import (
	"bytes"
	"slices"
	"time"
)

// otlpTime is what OpenTelemetry calls the time.
const otlpTime = "timeUnixNano"

// fieldAliases are what a field is called in logs, the best name first: in those of Envoy Gateway,
// Istio, OpenTelemetry, nginx, Caddy, Traefik, HAProxy, AWS, Google Cloud, Azure Front Door,
// Cloudflare, Fastly, Kong, APISIX, Zeek, of Node.js's pino and in the W3C's format. A field that is not
// here has its own name only.
var fieldAliases = map[string][]string{
	// When a request began is what Envoy asks at, so that is better than when it ended.
	fieldTime: {
		"start_time", "StartUTC", "request_creation_time", "EdgeStartTimestamp", "started_at", fieldTime, otlpTime, "time_iso8601", "msec", "time_local", "accept_date",
		"@timestamp", "timestamp", "datetime", "ts",
	},
	fieldStatus: {
		fieldStatus, "response_code", "DownstreamStatus", "elb_status_code", "sc-status", "status_code", "response.status", "httpRequest.status",
		"res.statusCode", "EdgeResponseStatus", "properties.httpStatusCode", "httpStatusCode", "response_status",
	},
	fieldFlags: {fieldFlags, "response_flags"},
	":method": {
		":method", "method", "request_method", "RequestMethod", "request.method", "cs-method", "verb", "httpRequest.requestMethod", "req.method", "ClientRequestMethod",
		"properties.httpMethod", "httpMethod", requestLine,
	},
	":path": {
		":path", "x-envoy-origin-path", "path", "request_uri", "RequestPath", caddyPath, requestLine, "uri", "url", "cs-uri-stem", "httpRequest.requestUrl",
		"req.url", "ClientRequestURI", "properties.requestUri", "requestUri", "absolute_url", "target",
	},
	":authority": {
		":authority", "authority", "http_host", "RequestHost", "request.host", "x-host-header", "cs(Host)", "host", "server_name", "vhost", "req.headers.host",
		"request.headers.host", "ClientRequestHost", "properties.hostName", "httpRequest.requestUrl", "properties.requestUri", "requestUri", "absolute_url", requestLine,
	},
	":scheme":  {":scheme", "scheme", "RequestScheme", "cs-protocol"},
	"protocol": {"protocol", "server_protocol", "RequestProtocol", "request.proto", "cs-protocol-version", requestLine},
	FieldRemote: {
		FieldRemote, "remote_addr", "client_ip", "clientip", "ClientHost", "request.client_ip", "request.remote_ip", "remote_ip", "c-ip", "client",
		"ClientAddr", "httpRequest.remoteIp", "req.remoteAddress", "ClientIP", "properties.clientIp", "clientIp", "id.orig_h",
	},
	// Caddy's duration is another one than Envoy's.
	FieldDuration: {FieldDuration, "request_time", "Duration", "responseTime", "latencies.request", "elapsed"},
	FieldDirect:   {FieldDirect, "request.remote_ip", "realip_remote_addr"},
	"user-agent": {
		"user-agent", "user_agent", "http_user_agent", "agent", "httpRequest.userAgent", "ClientRequestUserAgent", "properties.userAgent",
		"userAgent", "request_user_agent",
	},
	"x-request-id": {"x-request-id", "request_id"},
}

// durationUnits are in which unit servers say how long a request took, by what they call it.
var durationUnits = map[string]time.Duration{FieldDuration: time.Millisecond, "request_time": time.Second, "Duration": time.Nanosecond}

// headerPatterns are what servers call the header NAME, whose case and dashes they change.
var headerPatterns = []string{"NAME", "http_NAME", "request_NAME", "request.headers.NAME", "cs(NAME)", "req.headers.NAME"}

// aliasesOf returns what a field may be called.
func aliasesOf(name string) []string {
	if names := fieldAliases[name]; names != nil {
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

// urlFields have a whole URL, or the part of it after the authority.
var urlFields = []string{"url", "absolute_url", "httpRequest.requestUrl", "properties.requestUri", "requestUri"}

// urlParts are the fields that a URL has, by their names.
var urlParts = map[string]func(url []byte) []byte{
	":path": func(url []byte) []byte {
		_, path := cutURL(url)
		return path
	},
	":authority": func(url []byte) []byte {
		authority, _ := cutURL(url)
		return authority
	},
}

// partExtractors returns how a field of a log is cut into others, by their names; nil if it is not.
func partExtractors(called string) map[string]func(value []byte) []byte {
	switch {
	case called == requestLine:
		return requestParts
	case slices.Contains(urlFields, called):
		return urlParts
	default:
		return nil
	}
}

// cutURL cuts a URL at its path. One that begins with a slash is a path.
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

// cutRequest cuts a request line. One that is none, as scanners send, has no parts.
func cutRequest(line []byte) (r request) {
	method, target, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(method) == 0 || slices.ContainsFunc(method, func(c byte) bool { return (c < 'A' || c > 'Z') && c != '-' || method[0] == '-' }) {
		return r
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target, r.protocol = target[:i], target[i+1:]
	}
	r.method = method
	r.authority, r.path = cutURL(target) // which is a URL in requests to a proxy, and in logs of AWS
	return r
}
