package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CountPenalty counts a penalty that has started.
func (c *RuleCounters) CountPenalty() { c.penalties.Add(1) }

var penaltiesDesc = ruleDesc("sluice_penalties_total", "Penalties that have started: a client was denied by a limit with a penalty, and stays denied until the step of the penalty is over.")

// collectPenalties emits the penalties of a limit that has them.
func (s *ruleSeries) collectPenalties(ch chan<- prometheus.Metric, labels []string) {
	if n := s.counters.penalties.Load(); s.limit.Penalty || n > 0 {
		ch <- prometheus.MustNewConstMetric(penaltiesDesc, prometheus.CounterValue, float64(n), labels...)
	}
}
