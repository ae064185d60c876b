package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Ended counts the gRPC connections that sluice closed because of what their clients did, by reason.
// grpc-go does not report the connections that it closes, so with it nothing is counted. The fields may be
// used concurrently.
type Ended struct {
	// Glitches: thousands of frames that are valid but useless, or of calls that had to be reset.
	// TooManyPings: pings more often than --keepalive-min-time allows. FlowControl: more bytes than the
	// windows allowed. Protocol: any other violation of HTTP/2.
	Glitches, TooManyPings, FlowControl, Protocol prometheus.Counter
	// Memory: all connections together buffered too much, and this one the most.
	Memory prometheus.Counter
	// HandshakeTimeout: no HTTP/2 within --connection-timeout. IncompleteFrame: a frame was begun and not
	// finished. NotReading: the client did not read replies. PingTimeout: a ping was not answered.
	HandshakeTimeout, IncompleteFrame, NotReading, PingTimeout prometheus.Counter
	// Bug: a panic.
	Bug prometheus.Counter
}

func newEnded(r *registry) Ended {
	v := r.counters("sluice_ended_connections_total",
		"gRPC connections closed because of their clients, by reason: glitches (thousands of useless frames, or of calls that had to be reset); memory (too much buffered on all connections, most of it on this one); flow_control, protocol and too_many_pings (violations of HTTP/2 and of --keepalive-min-time); handshake_timeout, incomplete_frame, not_reading and ping_timeout (the client took too long); bug (a panic). Not counted with grpc-go.",
		"reason")
	by := func(reason string) prometheus.Counter { return v.WithLabelValues(reason) }
	return Ended{
		Glitches: by("glitches"), TooManyPings: by("too_many_pings"), FlowControl: by("flow_control"), Protocol: by("protocol"), Memory: by("memory"),
		HandshakeTimeout: by("handshake_timeout"), IncompleteFrame: by("incomplete_frame"), NotReading: by("not_reading"), PingTimeout: by("ping_timeout"),
		Bug: by("bug"),
	}
}

// carriers are the metrics of what carries gRPC.
type carriers struct{ info, connections *prometheus.GaugeVec }

func newCarriers(r *registry) carriers {
	return carriers{
		info:        r.gauges("sluice_grpc_transport_info", "Always 1; the label is the gRPC server: builtin or grpc-go.", "transport"),
		connections: r.gauges("sluice_connections", "Open gRPC connections, by what carries them.", "transport"),
	}
}

// Carry shows what carries gRPC, and returns the gauge of its open connections.
func (c *carriers) Carry(transport string) prometheus.Gauge {
	c.info.WithLabelValues(transport).Set(1)
	return c.connections.WithLabelValues(transport)
}
