package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ClosedConnections count the gRPC connections that the server closed because of their clients, by
// reason. grpc-go does not report why it closes a connection, so with grpc-go all are 0. The fields
// may be used concurrently.
type ClosedConnections struct {
	// Flood: thousands of frames without a request, or thousands of calls that the client reset.
	// TooManyPings: more often than allowed. FlowControl: more bytes than allowed.
	// Protocol: any other violation of HTTP/2.
	Flood, TooManyPings, FlowControl, Protocol prometheus.Counter
	// Memory: the unfinished requests of all connections exceed their bound, and this connection
	// has the most.
	Memory prometheus.Counter
	// HandshakeTimeout: no HTTP/2 in time. FrameTimeout: an incomplete frame.
	// WriteTimeout: the client did not read responses. KeepaliveTimeout: a ping was not answered.
	HandshakeTimeout, FrameTimeout, WriteTimeout, KeepaliveTimeout prometheus.Counter
	// Panic: a bug in sluice.
	Panic prometheus.Counter
}

func newClosedConnections(r *registry) ClosedConnections {
	v := r.counters("sluice_grpc_connections_closed_total",
		"gRPC connections closed because of their clients, by reason: flood (of frames or resets without requests), too_many_pings, flow_control and protocol (violations of HTTP/2), memory (unfinished requests), handshake_timeout, frame_timeout, write_timeout (the client did not read), keepalive_timeout, panic (a bug). Not with --grpc-transport=grpc-go.",
		"reason")
	return ClosedConnections{
		Flood: v.WithLabelValues("flood"), TooManyPings: v.WithLabelValues("too_many_pings"),
		FlowControl: v.WithLabelValues("flow_control"), Protocol: v.WithLabelValues("protocol"), Memory: v.WithLabelValues("memory"),
		HandshakeTimeout: v.WithLabelValues("handshake_timeout"), FrameTimeout: v.WithLabelValues("frame_timeout"),
		WriteTimeout: v.WithLabelValues("write_timeout"), KeepaliveTimeout: v.WithLabelValues("keepalive_timeout"), Panic: v.WithLabelValues("panic"),
	}
}

type transportMetrics struct {
	info, connections *prometheus.GaugeVec
	open              prometheus.Gauge // open connections; nil before SetTransport
}

func newTransportMetrics(r *registry) transportMetrics {
	return transportMetrics{
		info:        r.gauges("sluice_grpc_transport_info", "Always 1; the label is the gRPC server: builtin or grpc-go.", "transport"),
		connections: r.gauges("sluice_grpc_connections", "Open gRPC connections, by the gRPC server.", "transport"),
	}
}

// SetTransport sets the name of the gRPC server, and returns the gauge of its open connections. It
// must be called before the server starts, and only once.
func (m *transportMetrics) SetTransport(transport string) prometheus.Gauge {
	m.info.WithLabelValues(transport).Set(1)
	m.open = m.connections.WithLabelValues(transport)
	return m.open
}

// OpenConnections returns the number of open gRPC connections.
func (m *transportMetrics) OpenConnections() int {
	if m.open == nil {
		return 0
	}
	return int(gaugeValue(m.open))
}

// Rejected count requests that were answered with an error instead of a decision, by reason. The
// fields may be used concurrently.
type Rejected struct {
	// Headers, Message, Descriptors, Entries and KeyLength count requests beyond the bound on each.
	Headers, Message, Descriptors, Entries, KeyLength prometheus.Counter
	// NoDomain and NoDescriptors count requests without a domain or descriptors, Malformed those
	// that cannot be decoded.
	NoDomain, NoDescriptors, Malformed prometheus.Counter
	// NotAllowed counts requests for a domain that the client may not use, NoRules those before any
	// rules were loaded, and GRPCOnHTTP gRPC calls to an HTTP port.
	NotAllowed, NoRules, GRPCOnHTTP prometheus.Counter
}

func newRejected(r *registry) Rejected {
	v := r.counters("sluice_rejected_requests_total",
		"Requests answered with an error instead of a decision, by reason: beyond the bound on headers, message, descriptors, entries or key_length; no_domain, no_descriptors or malformed; not_allowed by --grpc-allow; before rules were loaded (no_rules); or gRPC sent to an HTTP port (grpc_on_http_port).",
		"reason")
	by := func(reason string) prometheus.Counter { return v.WithLabelValues(reason) }
	return Rejected{
		Headers: by("headers"), Message: by("message"), Descriptors: by("descriptors"), Entries: by("entries"),
		KeyLength: by("key_length"), NoDomain: by("no_domain"), NoDescriptors: by("no_descriptors"), Malformed: by("malformed"),
		NotAllowed: by("not_allowed"), NoRules: by("no_rules"), GRPCOnHTTP: by("grpc_on_http_port"),
	}
}
