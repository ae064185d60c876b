package telemetry

import "github.com/prometheus/client_golang/prometheus"

// TLS are the metrics of the TLS files of a listener or client. The fields may be used
// concurrently.
type TLS struct {
	// Reloads and ReloadErrors count changes of the files that were applied and rejected.
	Reloads, ReloadErrors prometheus.Counter
	// LastOK is 1 if the files are in use, 0 if they were rejected.
	LastOK prometheus.Gauge
	// Expiry is the earliest expiry in the active certificate chain, in Unix seconds; 0 without a
	// certificate.
	Expiry prometheus.Gauge
	// ExpiryWarning is the start of the condition certificate_expires_soon, in Unix seconds.
	ExpiryWarning prometheus.Gauge
	// HandshakeErrors counts connections that ended before their first call.
	HandshakeErrors prometheus.Counter
}

// newTLSMetrics returns a function that returns the metrics of a use of TLS files, such as "grpc".
// A use has no series before.
func newTLSMetrics(r *registry) func(use string) *TLS {
	reloads := r.counters("sluice_tls_reloads_total", "Changes of certificate, key or CA files that were applied.",
		"use")
	reloadErrors := r.counters("sluice_tls_reload_errors_total",
		"Changes of certificate, key or CA files that were rejected; the previous ones stayed in use.", "use")
	handshakeErrors := r.counters("sluice_tls_handshake_errors_total", "Connections that ended in the TLS handshake.",
		"use")
	lastOK := r.gauges("sluice_tls_last_reload_successful",
		"1 if the certificate, key and CA files on disk are in use, 0 if they were rejected.", "use")
	expiry := r.gauges("sluice_tls_certificate_expiry_timestamp_seconds",
		"Earliest expiry in the active certificate chain, in Unix seconds.", "use")
	warning := r.gauges("sluice_tls_certificate_warning_timestamp_seconds", "When the condition certificate_expires_soon starts, in Unix seconds: 7 days before the expiry, or after nine tenths of the validity if that is later.", "use")
	return func(use string) *TLS {
		return &TLS{
			Reloads: reloads.WithLabelValues(use), ReloadErrors: reloadErrors.WithLabelValues(use), HandshakeErrors: handshakeErrors.WithLabelValues(use),
			LastOK: lastOK.WithLabelValues(use), Expiry: expiry.WithLabelValues(use), ExpiryWarning: warning.WithLabelValues(use),
		}
	}
}

// TokenFile are the metrics of the file of --debug-token-file. The fields may be used concurrently.
type TokenFile struct {
	// ReloadErrors counts changes of the file that were rejected.
	ReloadErrors prometheus.Counter
	// LastOK is 0 if the last change of the file was rejected, else 1.
	LastOK prometheus.Gauge
}

// DebugDenied count denied requests to the debug listener, by reason. The fields may be used
// concurrently.
type DebugDenied struct {
	// NoCredentials: the request had neither a token nor a certificate. UnknownToken: its token is
	// not in the file. NotGranted: its certificate or token lacks the right.
	NoCredentials, UnknownToken, NotGranted prometheus.Counter
}

func newTokenFile(r *registry) TokenFile {
	f := TokenFile{
		ReloadErrors: r.counter("sluice_debug_token_file_reload_errors_total", "Changes of the file of --debug-token-file that were rejected; the previous tokens stayed in use."),
		LastOK:       r.gauge("sluice_debug_token_file_last_reload_successful", "0 if the last change of the file of --debug-token-file was rejected, else 1."),
	}
	f.LastOK.Set(1)
	return f
}

func newDebugDenied(r *registry) DebugDenied {
	v := r.counters("sluice_debug_denied_requests_total",
		"Requests to the debug listener that were denied because of their token or certificate, by reason: no_credentials, unknown_token, not_granted.", "reason")
	return DebugDenied{
		v.WithLabelValues("no_credentials"), v.WithLabelValues("unknown_token"), v.WithLabelValues("not_granted"),
	}
}
