package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Rejected count requests that were answered with an error instead of a decision,
// by reason. Its fields may be used concurrently.
type Rejected struct {
	// Descriptors, Entries, KeyLength and ValueLength are those beyond the bound on
	// each.
	Descriptors, Entries, KeyLength, ValueLength prometheus.Counter
}

func newRejected(m *Metrics) Rejected {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_rejected_requests_total",
		Help: "Requests answered with an error because they were beyond a bound on requests, by reason: descriptors, entries, key_length or value_length.",
	}, []string{"reason"})
	m.Register(v)
	return Rejected{
		Descriptors: v.WithLabelValues("descriptors"),
		Entries:     v.WithLabelValues("entries"),
		KeyLength:   v.WithLabelValues("key_length"),
		ValueLength: v.WithLabelValues("value_length"),
	}
}
