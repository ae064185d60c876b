package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Ended count the gRPC connections that sluice ended because of what their clients did, by reason.
// grpc-go does not report which it ends, so over it none is counted. Its fields may be used concurrently.
type Ended struct {
	// OddActs are frames that ask for nothing, and calls that had to be reset, by thousands. Pings are
	// more than --keepalive-min-time allows, Windows more bytes than flow control allowed, and Protocol
	// is any other breach of HTTP/2.
	OddActs, Pings, Windows, Protocol prometheus.Counter
	// Memory is that of unfinished requests, when all connections together hold too much of it and
	// this one the most.
	Memory prometheus.Counter
	// Begin is no HTTP/2 within --connection-timeout, Frame one that began and did not end, Unread
	// replies that the client did not take, and Silent no answer to a ping.
	Begin, Frame, Unread, Silent prometheus.Counter
	// Bug is one of sluice's.
	Bug prometheus.Counter
}

func newEnded(r *registry) Ended {
	v := r.counters("sluice_ended_connections_total",
		"gRPC connections ended because of their clients, by reason: odd_acts, frames that ask for nothing and calls that had to be reset, by thousands; memory of unfinished requests; windows, protocol and pings, breaches of HTTP/2 and of --keepalive-min-time; begin, frame, unread and silent, a client that took too long; bug, a panic. Over grpc-go none is counted.",
		"reason")
	by := func(reason string) prometheus.Counter { return v.WithLabelValues(reason) }
	return Ended{
		OddActs: by("odd_acts"), Pings: by("pings"), Windows: by("windows"), Protocol: by("protocol"), Memory: by("memory"),
		Begin: by("begin"), Frame: by("frame"), Unread: by("unread"), Silent: by("silent"), Bug: by("bug"),
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
