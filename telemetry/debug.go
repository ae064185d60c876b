package telemetry

import "github.com/prometheus/client_golang/prometheus"

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
	return DebugDenied{v.WithLabelValues("no_credentials"), v.WithLabelValues("unknown_token"), v.WithLabelValues("not_granted")}
}
