package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// maxEnded bounds the series that are kept after their rules ended.
const maxEnded = MaxConfigured + MaxRuntime

// endedSeries are the series that ended with one call of [Rules.Configure], and had hits.
type endedSeries struct {
	load   uint64 // the number of the call
	series []ruleSeries
	stored bool
}

// keepEnded has series kept that end, until forgetEnded is called: a series of the same name may begin at 0 before a [Statsd]
// has sent the last hits of the one that ended.
func (r *Rules) keepEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keepsEnded = true
}

// endLocked keeps the series of before that ended with this load.
func (r *Rules) endLocked(before []ruleSeries) {
	r.loads++
	if !r.keepsEnded {
		return
	}
	counters := map[RuleKey]*RuleCounters{}
	for _, s := range r.seriesLocked() {
		counters[s.key] = s.counters
	}
	e := &endedSeries{load: r.loads, stored: r.stored.Load()}
	for _, s := range before {
		if counters[s.key] != s.counters && s.counters.used() {
			e.series = append(e.series, s)
		}
	}
	if len(e.series) == 0 {
		return
	}
	r.ended = append(r.ended, e)
	kept := 0
	for i, e := range slices.Backward(r.ended) {
		if kept += len(e.series); kept > maxEnded {
			r.ended = slices.Delete(r.ended, 0, i+1)
			break
		}
	}
}

// loaded returns how often [Rules.Configure] was called.
func (r *Rules) loaded() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// nextEnded returns the oldest series that are kept, of no later call of [Rules.Configure] than load, or nil.
func (r *Rules) nextEnded(load uint64) *endedSeries {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ended) == 0 || r.ended[0].load > load {
		return nil
	}
	return r.ended[0]
}

// forgetEnded ends keeping e.
func (r *Rules) forgetEnded(e *endedSeries) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = slices.DeleteFunc(r.ended, func(kept *endedSeries) bool { return kept == e })
}

// Describe implements [prometheus.Collector].
func (*endedSeries) Describe(ch chan<- *prometheus.Desc) { rulesCollector{}.Describe(ch) }

// Collect implements [prometheus.Collector].
func (e *endedSeries) Collect(ch chan<- prometheus.Metric) {
	for i := range e.series {
		e.series[i].collect(ch, e.stored)
	}
}
