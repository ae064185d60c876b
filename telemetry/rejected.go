package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Rejected count requests that were answered with an error instead of a decision,
// by reason. Its fields may be used concurrently.
type Rejected struct {
	// Descriptors, Entries, KeyLength and ValueLength are those beyond the bound on
	// each.
	Descriptors, Entries, KeyLength, ValueLength prometheus.Counter
	// NotAllowed are those for a domain that the client may not ask for.
	NotAllowed prometheus.Counter
}

func newRejected(m *Metrics) Rejected {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_rejected_requests_total",
		Help: "Requests answered with an error instead of a decision, by reason: beyond the bound on descriptors, entries, key_length or value_length, or not_allowed to the client by --grpc-allow.",
	}, []string{"reason"})
	m.Register(v)
	return Rejected{
		Descriptors: v.WithLabelValues("descriptors"),
		Entries:     v.WithLabelValues("entries"),
		KeyLength:   v.WithLabelValues("key_length"),
		ValueLength: v.WithLabelValues("value_length"),
		NotAllowed:  v.WithLabelValues("not_allowed"),
	}
}
