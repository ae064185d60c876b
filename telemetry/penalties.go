package telemetry

import dto "github.com/prometheus/client_model/go"

// CountPenalty counts a penalty that has started.
func (c *RuleCounters) CountPenalty() { c.penalties.Add(1) }

var penaltiesMetric = ruleMetric{
	"sluice_penalties_total",
	"Penalties that have started: a client was denied by a limit with a penalty, and stays denied until the step of the penalty is over.",
	dto.MetricType_COUNTER,
	func(s *ruleSeries) (float64, bool) {
		n := s.counters.penalties.Load()
		return float64(n), s.limit.Penalty || n > 0
	},
}
