package telemetry

import "github.com/prometheus/client_golang/prometheus"

// TokenFile are the metrics of the file of --debug-token-file. Its fields may be used concurrently.
type TokenFile struct {
	// ReloadErrors counts changes of the file that were rejected.
	ReloadErrors prometheus.Counter
	// LastOK is 1 unless what the file holds was rejected.
	LastOK prometheus.Gauge
}

// DebugDenied count requests to the debug listener that were denied, by reason. Its fields may be used
// concurrently.
type DebugDenied struct {
	// NoCredentials had neither a token nor a certificate, UnknownToken a token that is not in the file. NotGranted are
	// those whose certificate or token has not the right.
	NoCredentials, UnknownToken, NotGranted prometheus.Counter
}

func newTokenFile(r *registry) TokenFile {
	f := TokenFile{
		ReloadErrors: r.counter("sluice_debug_token_file_reload_errors_total", "Changes of the file of --debug-token-file that were rejected; what was in use stayed."),
		LastOK:       r.gauge("sluice_debug_token_file_last_reload_successful", "0 if the file of --debug-token-file was rejected when it changed, else 1."),
	}
	f.LastOK.Set(1)
	return f
}

func newDebugDenied(r *registry) DebugDenied {
	v := r.counters("sluice_debug_denied_total",
		"Requests to the debug listener that were denied where tokens or certificates give rights, by reason: no_credentials, unknown_token, not_granted.", "reason")
	return DebugDenied{v.WithLabelValues("no_credentials"), v.WithLabelValues("unknown_token"), v.WithLabelValues("not_granted")}
}
