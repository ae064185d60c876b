package telemetry

import "github.com/prometheus/client_golang/prometheus"

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
