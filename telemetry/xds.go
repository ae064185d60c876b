package telemetry

import "github.com/prometheus/client_golang/prometheus"

// XDS are the metrics of a management server that rules come from. Its fields may
// be used concurrently.
type XDS struct {
	// Connected is 1 while a stream is open.
	Connected prometheus.Gauge
	// ACKs and NACKs count the responses that were taken and those that were rejected.
	ACKs, NACKs prometheus.Counter
}

// XDS returns the metrics of the management server, and registers them: it is
// called once, where there is one.
func (m *Metrics) XDS() *XDS {
	connected := m.gauge("sluice_xds_connected", "1 while a stream from the management server is open; without one the rules stay as they are.")
	updates := m.counters("sluice_xds_updates_total", "Responses of the management server that were acknowledged (ack) and rejected (nack).", "result")
	return &XDS{Connected: connected, ACKs: updates.WithLabelValues("ack"), NACKs: updates.WithLabelValues("nack")}
}
