package telemetry

import "github.com/prometheus/client_golang/prometheus"

// TLS are the metrics of one use of TLS files: of a listener or of a client. Its
// fields may be used concurrently.
type TLS struct {
	// Reloads and ReloadErrors count changes of the files that were taken and those
	// that were rejected.
	Reloads, ReloadErrors prometheus.Counter
	// LastOK is 1 if what the files hold is in use, 0 if it was rejected.
	LastOK prometheus.Gauge
	// Expiry is when the certificate in use expires, or the first one of its
	// chain, in Unix seconds; 0 without a certificate.
	Expiry prometheus.Gauge
	// HandshakeErrors counts connections that ended before their first call.
	HandshakeErrors prometheus.Counter
}

// newTLSMetrics returns a function that returns the metrics of the use of TLS files that has a name,
// such as "grpc". It has no series before.
func newTLSMetrics(r *registry) func(use string) *TLS {
	reloads := r.counters("sluice_tls_reloads_total", "Changes of certificate, key or authority files that were taken.", "use")
	reloadErrors := r.counters("sluice_tls_reload_errors_total", "Changes of certificate, key or authority files that were rejected; what was in use stayed.", "use")
	handshakeErrors := r.counters("sluice_tls_handshake_errors_total", "Connections that ended in the TLS handshake.", "use")
	lastOK := r.gauges("sluice_tls_last_reload_successful", "1 if the certificate, key and authorities on disk are those in use, 0 if they were rejected.", "use")
	expiry := r.gauges("sluice_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires, or the first one of its chain, in Unix seconds.", "use")
	return func(use string) *TLS {
		return &TLS{
			Reloads: reloads.WithLabelValues(use), ReloadErrors: reloadErrors.WithLabelValues(use), HandshakeErrors: handshakeErrors.WithLabelValues(use),
			LastOK: lastOK.WithLabelValues(use), Expiry: expiry.WithLabelValues(use),
		}
	}
}
