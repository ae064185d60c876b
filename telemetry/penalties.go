package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Penalised counts a penalty that has begun.
func (c *RuleCounters) Penalised() { c.penalties.Add(1) }

var penaltiesDesc = ruleDesc("sluice_penalties_total", "Penalties that have begun: somebody was denied by a limit with the word penalty, and is denied until its step is over.")

// collectPenalties shows the penalties of a limit that has some.
func (s *ruleSeries) collectPenalties(ch chan<- prometheus.Metric, labels []string) {
	if n := s.counters.penalties.Load(); s.limit.Penalty || n > 0 {
		ch <- prometheus.MustNewConstMetric(penaltiesDesc, prometheus.CounterValue, float64(n), labels...)
	}
}
