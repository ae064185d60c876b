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

// tlsMetrics are those of all uses.
type tlsMetrics struct {
	reloads, reloadErrors, handshakeErrors *prometheus.CounterVec
	lastOK, expiry                         *prometheus.GaugeVec
}

func newTLSMetrics(m *Metrics) tlsMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"use"})
		m.Register(c)
		return c
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"use"})
		m.Register(g)
		return g
	}
	return tlsMetrics{
		reloads:         counter("sluice_tls_reloads_total", "Changes of certificate, key or authority files that were taken."),
		reloadErrors:    counter("sluice_tls_reload_errors_total", "Changes of certificate, key or authority files that were rejected; what was in use stayed."),
		handshakeErrors: counter("sluice_tls_handshake_errors_total", "Connections that ended in the TLS handshake."),
		lastOK:          gauge("sluice_tls_last_reload_successful", "1 if the certificate, key and authorities on disk are those in use, 0 if they were rejected."),
		expiry:          gauge("sluice_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires, or the first one of its chain, in Unix seconds."),
	}
}

// TLS returns the metrics of the use of TLS files that has that name, such as
// "grpc". It has no series before.
func (m *Metrics) TLS(use string) *TLS {
	return &TLS{
		Reloads:         m.tls.reloads.WithLabelValues(use),
		ReloadErrors:    m.tls.reloadErrors.WithLabelValues(use),
		HandshakeErrors: m.tls.handshakeErrors.WithLabelValues(use),
		LastOK:          m.tls.lastOK.WithLabelValues(use),
		Expiry:          m.tls.expiry.WithLabelValues(use),
	}
}
