package telemetry

import "slices"

// maxEnded bounds the series that are kept after their rules were removed.
const maxEnded = MaxConfigured + MaxRuntime

// endedSeries are the series with hits that ended with one call of [Rules.Configure].
type endedSeries struct {
	load   uint64 // number of the call
	series []ruleSeries
	stored bool
}

// keepEnded makes r keep the series that end, until forgetEnded is called: a series of the same
// name may start at 0 before a [Statsd] has sent the last hits of the one that ended.
func (r *Rules) keepEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keepsEnded = true
}

// recordEndedLocked counts a call of [Rules.Configure]. It keeps those of the series before the
// call that ended with it.
func (r *Rules) recordEndedLocked(before []ruleSeries) {
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

// loadCount returns the number of calls of [Rules.Configure].
func (r *Rules) loadCount() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// nextEnded returns the oldest kept series, or nil if there are none up to the call of
// [Rules.Configure] with number load.
func (r *Rules) nextEnded(load uint64) *endedSeries {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ended) == 0 || r.ended[0].load > load {
		return nil
	}
	return r.ended[0]
}

func (r *Rules) forgetEnded(e *endedSeries) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = slices.DeleteFunc(r.ended, func(kept *endedSeries) bool { return kept == e })
}
