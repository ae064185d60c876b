package accesslog

import (
	"bytes"
	"slices"
	"time"
)

// otlpTime is OpenTelemetry's name of the time.
const otlpTime = "timeUnixNano"

// fieldAliases maps a field to its names in logs of Envoy Gateway, Istio, OpenTelemetry, nginx,
// Caddy, Traefik, HAProxy, AWS, Google Cloud, Azure Front Door, Cloudflare, Fastly, Kong, APISIX,
// Zeek, Node.js' pino and W3C logs, the preferred one first. Other fields have their own name only.
var fieldAliases = map[string][]string{
	// Envoy queries the service when a request starts, so start times come first.
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
	// Caddy's duration has another unit than Envoy's; see DurationUnit.
	FieldDuration: {FieldDuration, "request_time", "Duration", "responseTime", "latencies.request", "elapsed"},
	FieldDirect:   {FieldDirect, "request.remote_ip", "realip_remote_addr"},
	"user-agent": {
		"user-agent", "user_agent", "http_user_agent", "agent", "httpRequest.userAgent", "ClientRequestUserAgent", "properties.userAgent",
		"userAgent", "request_user_agent",
	},
	"x-request-id": {"x-request-id", "request_id"},
}

// durationUnits are the units of the servers' duration fields.
var durationUnits = map[string]time.Duration{FieldDuration: time.Millisecond, "request_time": time.Second, "Duration": time.Nanosecond}

// headerPatterns are the servers' names of the header NAME, up to case and dashes.
var headerPatterns = []string{"NAME", "http_NAME", "request_NAME", "request.headers.NAME", "cs(NAME)", "req.headers.NAME"}

func aliasesOf(name string) []string {
	if names := fieldAliases[name]; names != nil {
		return names
	}
	return []string{name}
}

// caddyPath identifies Caddy's logs.
const caddyPath = "request.uri"

// requestLine is the field with method, path and protocol, such as GET / HTTP/1.1.
const requestLine = "request"

// requestParts extracts fields from a request line.
var requestParts = map[string]func(line []byte) []byte{
	":method":    func(line []byte) []byte { return cutRequest(line).method },
	":path":      func(line []byte) []byte { return cutRequest(line).path },
	":authority": func(line []byte) []byte { return cutRequest(line).authority },
	"protocol":   func(line []byte) []byte { return cutRequest(line).protocol },
}

// urlFields contain a URL, or its part after the authority.
var urlFields = []string{"url", "absolute_url", "httpRequest.requestUrl", "properties.requestUri", "requestUri"}

// urlParts extracts fields from a URL.
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

// partExtractors returns the functions that extract fields from the given log field, or nil.
func partExtractors(logName string) map[string]func(value []byte) []byte {
	switch {
	case logName == requestLine:
		return requestParts
	case slices.Contains(urlFields, logName):
		return urlParts
	default:
		return nil
	}
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
	if !ok || len(method) == 0 || slices.ContainsFunc(method, func(c byte) bool { return (c < 'A' || c > 'Z') && c != '-' || method[0] == '-' }) {
		return r
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target, r.protocol = target[:i], target[i+1:]
	}
	r.method = method
	r.authority, r.path = cutURL(target) // a URL in requests to a proxy and in logs of AWS
	return r
}
