package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Leases count what becomes of leases beside those that run out, which rules count. Its fields may be used
// concurrently.
type Leases struct {
	// Done, Reset, Connection and Reload are those that gave something back: by Envoy's call at the end of a stream, the
	// reset of a call, the end of a client's last connection, and rules or rows without their limit.
	Done, Reset, Connection, Reload prometheus.Counter
	// Stale and Foreign are those that gave nothing back: what was held under them is free already, or they are no
	// leases.
	Stale, Foreign prometheus.Counter
	// Reserved are hits that requests have reserved. Settled are those of them that requests brought back which ended,
	// and Cost is what was charged in their place.
	Reserved, Settled, Cost prometheus.Counter
}

func newLeases(r *registry) Leases {
	returned := r.counters("sluice_leases_returned_total",
		"Leases that gave back what they held: by Envoy's call at the end of a stream (done), because Envoy had reset the call that was given them (reset), because Envoy was lost with all its connections (connection), or because a reload removed or renamed their limit (reload).", "by")
	ignored := r.counters("sluice_leases_ignored_total",
		"Leases that came back and held nothing, by reason: they had been given back or had run out (stale), or were numbers that no lease has (foreign).", "reason")
	hits := r.counters("sluice_reservation_hits_total",
		"Hits that requests reserved (reserved), those of them whose requests have ended (settled), and what was charged in their place (cost).", "kind")
	return Leases{
		Reserved: hits.WithLabelValues("reserved"), Settled: hits.WithLabelValues("settled"), Cost: hits.WithLabelValues("cost"),
		Done: returned.WithLabelValues("done"), Reset: returned.WithLabelValues("reset"),
		Connection: returned.WithLabelValues("connection"), Reload: returned.WithLabelValues("reload"),
		Stale: ignored.WithLabelValues("stale"), Foreign: ignored.WithLabelValues("foreign"),
	}
}

// Hold says that n more leases of a limit are out than before, or fewer.
func (c *RuleCounters) Hold(n int64) { c.held.Add(n) }

// Expired counts a lease of a limit that nobody has brought back in time.
func (c *RuleCounters) Expired() { c.expired.Add(1) }

// BeforeCollect has one more function called before the counters of rules are read, to bring them up to date.
func (r *Rules) BeforeCollect(update func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, update)
}

var (
	heldDesc    = ruleDesc("sluice_in_flight", "Requests in flight, or reservations, that this process has given a lease for: it has not come back and not run out. Without a store.")
	expiredDesc = ruleDesc("sluice_leases_expired_total", "Leases that nobody has brought back before they ran out. Without a store.")
)

// collectLeases shows the leases of a limit that gives some. With a store nobody counts them: another process may
// bring them back.
func (s *ruleSeries) collectLeases(ch chan<- prometheus.Metric, labels []string, stored bool) {
	held, expired := s.counters.held.Load(), s.counters.expired.Load()
	if s.limit.Leases && !stored || held > 0 || expired > 0 {
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(held), labels...)
		ch <- prometheus.MustNewConstMetric(expiredDesc, prometheus.CounterValue, float64(expired), labels...)
	}
}
