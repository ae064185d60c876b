package telemetry

import "github.com/prometheus/client_golang/prometheus"

// XDS are the metrics of the management server that rules come from. The fields may be used
// concurrently.
type XDS struct {
	// Connected is 1 while a stream is open.
	Connected prometheus.Gauge
	// ACKs and NACKs count accepted and rejected responses.
	ACKs, NACKs prometheus.Counter
}

// XDS registers and returns the metrics of the management server. It may be called only once.
func (m *Metrics) XDS() *XDS {
	connected := m.gauge("sluice_xds_connected", "1 while a stream from the management server is open; otherwise the rules do not change.")
	updates := m.counters("sluice_xds_updates_total", "Responses of the management server, by result: accepted (ack) or rejected (nack).", "result")
	return &XDS{Connected: connected, ACKs: updates.WithLabelValues("ack"), NACKs: updates.WithLabelValues("nack")}
}
