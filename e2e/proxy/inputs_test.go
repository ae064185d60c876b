//go:build more

package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// kib is Envoy's unit for header limits; the default limit is 60.
const kib = 1 << 10

// input is a part of a rate limit call whose text a client of Envoy chooses.
type input struct {
	name string
	// listener has the name of the input.
	listener
	// service overrides rate_limit_service of the filter. Optional.
	service string
	// request returns a request with n bytes of c.
	request func(c string, n int) clientRequest
	// maxBytes is at least the largest n that Envoy forwards. It may reject longer ones with a 4xx
	// status.
	maxBytes int
	// minCarried is the minimum size of the largest value or header of the call with maxBytes, to
	// check that the input reaches the service.
	minCarried int
	// skipsCall is true if Envoy makes no call for a larger n.
	skipsCall bool
}

type clientRequest struct {
	method, path, host string
	headers            http.Header
	http2              bool
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// userHeader is a request with n bytes of c in the header that most rules here use.
func userHeader(c string, n int) clientRequest {
	return clientRequest{headers: header("X-User", strings.Repeat(c, n))}
}

// userName is the user of a request that has n bytes of c in another part.
func userName(c string, n int) string { return fmt.Sprint(c, n) }

// mostDescriptors is the number of descriptors in the rules of inputs, and mostEntries the number
// of entries in one descriptor.
const (
	mostDescriptors = 60
	mostEntries     = 10
)

// limitedBy returns routes with one descriptor for each list of actions.
func limitedBy(descriptors ...string) string {
	var limits []string
	for _, actions := range descriptors {
		limits = append(limits, "{ actions: ["+actions+"] }")
	}
	return "[{ match: { prefix: / }, route: { rate_limits: [" + strings.Join(limits, ", ") + "] } }]"
}

// entries returns actions of a descriptor with n entries of the user.
func entries(n int) string {
	var actions []string
	for i := range n {
		actions = append(actions, byHeader("x-user", fmt.Sprint("e", i)))
	}
	return strings.Join(actions, ", ")
}

// repeated returns n descriptors with the user.
func repeated(n int) string {
	var all []string
	for i := range n {
		all = append(all, byHeader("x-user", fmt.Sprint("u", i)))
	}
	return limitedBy(all...)
}

// tracer returns the tracing configuration of a connection manager. Envoy's spans go to the
// backend, which ignores them.
func tracer(name, config string) string {
	return fmt.Sprintf("{ provider: { name: envoy.tracers.%s, typed_config: { \"@type\": type.googleapis.com/envoy.config.trace.v3.%s } } }", name, config)
}

const (
	openTelemetry = `OpenTelemetryConfig, service_name: envoy, http_service: { http_uri: { uri: "http://backend/v1/traces", cluster: backend, timeout: 1s } }`
	zipkin        = `ZipkinConfig, collector_cluster: backend, collector_endpoint: /api/v2/spans, collector_endpoint_version: HTTP_JSON, trace_context_option: USE_B3_WITH_W3C_PROPAGATION`
	datadog       = `DatadogConfig, service_name: envoy, collector_cluster: backend`
	skywalking    = `SkyWalkingConfig, grpc_service: { envoy_grpc: { cluster_name: backend } }, client_config: { service_name: envoy, instance_name: here }`

	traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// inputs are all ways in which a client of Envoy can make a call larger, with sizes for Envoy's
// default limits.
var inputs = []input{
	{
		name: "header in one descriptor", listener: listener{routes: limitedBy(byHeader("x-user", "user"))},
		request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{name: "in two descriptors", listener: listener{routes: repeated(2)}, request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib},
	{name: "in three descriptors", listener: listener{routes: repeated(3)}, request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib},
	{name: "in ten descriptors", listener: listener{routes: repeated(10)}, request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib},
	{name: "in sixty descriptors", listener: listener{routes: repeated(mostDescriptors)}, request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib},
	{name: "in ten entries", listener: listener{routes: limitedBy(entries(mostEntries))}, request: userHeader, maxBytes: 59 * kib, minCarried: 59 * kib},
	{
		name: "twice in a value", maxBytes: 59 * kib, minCarried: 118 * kib,
		listener: listener{routes: limitedBy(`{ remote_address_match: { descriptor_key: user, descriptor_value: "%REQ(x-user)%%REQ(x-user)%", address_matcher: { ranges: [{ address_prefix: 127.0.0.0, prefix_len: 8 }] } } }`)},
		request:  userHeader,
	},
	{
		// CEL uses all values, the other actions only the first.
		name: "many headers of one name by CEL",
		listener: listener{routes: limitedBy(`{ extension: { name: cel, typed_config: {
  "@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor,
  descriptor_key: user, text: "request.headers['x-user']" } } }`)},
		request: func(c string, n int) clientRequest {
			h := http.Header{}
			for n := n; n > 0; n -= kib {
				h.Add("X-User", strings.Repeat(c, min(kib, n)))
			}
			return clientRequest{headers: h}
		},
		maxBytes: 58 * kib, minCarried: 58 * kib,
	},
	{
		name: "path and query", listener: listener{routes: limitedBy(byHeader(":path", "user"))},
		request: func(c string, n int) clientRequest {
			return clientRequest{path: "/" + c + "?q=" + strings.Repeat(c, n)}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		// Over HTTP/1.1 Envoy accepts only known methods.
		name: "method, over HTTP/2", listener: listener{routes: limitedBy(byHeader(":method", "user"))},
		request:  func(c string, n int) clientRequest { return clientRequest{method: strings.Repeat(c, n), http2: true} },
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name: "header, over HTTP/2", listener: listener{routes: limitedBy(byHeader("x-user", "user"))},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", strings.Repeat(c, n)), http2: true}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name:     "query parameter",
		listener: listener{routes: limitedBy(`{ query_parameters: { query_parameter_name: q, descriptor_key: user } }`)},
		request:  func(c string, n int) clientRequest { return clientRequest{path: "/?q=" + strings.Repeat(c, n)} },
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name: "authority", listener: listener{routes: limitedBy(byHeader(":authority", "user"))},
		request:  func(c string, n int) clientRequest { return clientRequest{host: strings.Repeat(c, n)} },
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name: "cookie", listener: listener{routes: limitedBy(byHeader("cookie", "user"))},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("Cookie", "c="+strings.Repeat(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name: "x-request-id", listener: listener{
			routes: limitedBy(byHeader("x-request-id", "user")), manager: "{ preserve_external_request_id: true }",
		},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-Request-Id", strings.Repeat(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		// Envoy uses only the last address.
		name: "x-forwarded-for", listener: listener{routes: limitedBy("{ remote_address: {} }")},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-Forwarded-For", strings.Repeat("1", n)+fmt.Sprintf(",2001:db8::%x:%x", c, n))}
		},
		maxBytes: 59 * kib,
	},
	{
		name: "x-forwarded-for in a descriptor", listener: listener{routes: limitedBy(byHeader("x-forwarded-for", "user"))},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-Forwarded-For", strings.Repeat(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		// The filter omits longer values, and Envoy then makes no call.
		name: "metadata of a header", listener: listener{
			before: `[{ name: envoy.filters.http.header_to_metadata, typed_config: {
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config,
  request_rules: [{ header: x-user, on_header_present: { metadata_namespace: us, key: user } }] } }]`,
			routes: limitedBy(`{ metadata: { descriptor_key: user, source: DYNAMIC, metadata_key: { key: us, path: [{ key: user }] } } }`),
		},
		request: userHeader, maxBytes: 8*kib - 1, minCarried: 8*kib - 1, skipsCall: true,
	},
	{
		name: "header of the call", listener: listener{routes: limitedBy(byHeader("x-shard", "user"))},
		service: `{ transport_api_version: V3, grpc_service: {
  envoy_grpc: { cluster_name: sluice }, initial_metadata: [{ key: x-shard, value: "%REQ(x-user)%" }] } }`,
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", strings.Repeat(c, n), "X-Shard", userName(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		// Envoy encodes the value. A value that is not Base64 would make the call fail.
		name: "binary header of the call in base64", listener: listener{routes: limitedBy(byHeader("x-shard", "user"))},
		service: `{ transport_api_version: V3, grpc_service: {
  envoy_grpc: { cluster_name: sluice }, initial_metadata: [{ key: x-shard-bin, value: "%REQ(x-user)%" }] } }`,
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", strings.Repeat(c, n), "X-Shard", userName(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name: "tracestate by OpenTelemetry",
		listener: listener{
			routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("opentelemetry", openTelemetry),
		},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", userName(c, n), "Traceparent", traceparent, "Tracestate", strings.Repeat(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name:     "tracestate and origin by Datadog",
		listener: listener{routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("datadog", datadog)},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", userName(c, n), "X-Datadog-Trace-Id", "12345", "X-Datadog-Parent-Id", "678",
				"X-Datadog-Origin", strings.Repeat(c, n/2), "X-Datadog-Tags", "_dd.p.t="+strings.Repeat(c, min(n, 400)),
				"Traceparent", "00-00000000000000000000000000003039-00f067aa0ba902b7-01", "Tracestate", strings.Repeat(c, n-n/2))}
		},
		maxBytes: 58 * kib, minCarried: 29 * kib,
	},
	{
		name:     "path by SkyWalking, in base64",
		listener: listener{routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("skywalking", skywalking)},
		request: func(c string, n int) clientRequest {
			return clientRequest{path: "/" + strings.Repeat(c, n), headers: header("X-User", userName(c, n))}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib * 4 / 3,
	},
	{
		name:     "trace id by SkyWalking",
		listener: listener{routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("skywalking", skywalking)},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", userName(c, n),
				"Sw8", "1-"+strings.Repeat(c, n)+"-NWU5YzEz-3-bWVzaA==-aW5zdGFuY2U=-L2FwaS92MS9oZWFsdGg=-dGVzdC1lcw==")}
		},
		maxBytes: 59 * kib, minCarried: 59 * kib,
	},
	{
		name:     "ids by Zipkin, baggage",
		listener: listener{routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("zipkin", zipkin)},
		request: func(c string, n int) clientRequest {
			return clientRequest{headers: header("X-User", userName(c, n), "B3", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
				"Tracestate", strings.Repeat(c, n/2), "Baggage", strings.Repeat(c, n-n/2))}
		},
		maxBytes: 59 * kib,
	},
}

// send returns the status of a request to a listener.
func (p *proxy) send(ctx context.Context, listener string, a clientRequest) (status int, err error) {
	if a.method == "" {
		a.method = http.MethodGet
	}
	if a.path == "" {
		a.path = "/"
	}
	req, err := http.NewRequestWithContext(ctx, a.method, "http://"+p.Addr(listener)+a.path, http.NoBody)
	if err != nil {
		return 0, err
	}
	if a.headers != nil {
		req.Header = a.headers
	}
	if a.host != "" {
		req.Host = a.host
	}
	client := p.client
	if a.http2 {
		client = p.http2
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// inputListeners allow requests on errors, as Envoy does by default.
func inputListeners() []listener {
	var all []listener
	for _, w := range inputs {
		l := w.listener
		l.name, l.rateLimit = w.name, []string{"{ failure_mode_deny: false }"}
		if w.service != "" {
			l.rateLimit = []string{"{ failure_mode_deny: false, rate_limit_service: " + w.service + " }"}
		}
		all = append(all, l)
	}
	return all
}

func (p *proxy) mustSend(t *testing.T, listener string, a clientRequest) int {
	t.Helper()
	status, err := p.send(t.Context(), listener, a)
	if err != nil {
		t.Errorf("%s: %.200v", listener, err)
	}
	return status
}
