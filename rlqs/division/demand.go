package division

import (
	"math"
	"time"
)

// minInterval is the shortest interval from which a rate is estimated.
const minInterval = 250 * time.Millisecond

// maxJitter bounds the usual difference between the delays of two reports.
const maxJitter = 500 * time.Millisecond

// maxCount bounds the counts of a report.
const maxCount = 1 << 30

// addReport updates the share with a report.
func (s *share) addReport(now, assignTimeout Time, r Report) {
	s.counted += float32(min(r.Allowed, maxCount)) + float32(min(r.Denied, maxCount))
	s.state |= replyDue
	s.state &^= denied
	if r.Denied > 0 {
		s.state |= denied
	}
	if s.has(abandoning) && (r.Elapsed == 0 || s.state&(queued|probing) == queued && r.Allowed+r.Denied > 0) {
		s.endAbandoning(now)
	}
	if r.Elapsed == 0 && s.state&(assigned|queued|unassigned) == 0 {
		s.setUnassigned(now + assignTimeout)
	}
	if s.state&(assigned|queued|probing|unassigned) == 0 && r.Elapsed > 0 {
		s.next = Rate(min(r.admittedRate(), int64(MaxRate)))
	}
	s.idleReports = min(s.idleReports, 254) + 1
	if r.Allowed+r.Denied > 0 {
		s.idleReports = 0
	}
	passed := r.interval(now - s.reported)
	if passed < minInterval {
		return
	}
	seconds := float32(passed.Seconds())
	s.updateDemand(s.counted/seconds, float32(min(r.Denied, maxCount))/seconds, seconds)
	s.counted, s.reported = 0, now
}

// interval returns the length of the interval that a report covers: the given time since the last
// report was read, or the time by Envoy's clock if one of the two reports was read late.
func (r *Report) interval(passed Time) Time {
	if r.Elapsed > 0 && (passed < r.Elapsed-maxJitter || passed > r.Elapsed+time.Second+maxJitter) {
		return r.envoyInterval()
	}
	return passed
}

// envoyInterval returns an upper bound of the time since the last report of the bucket, by Envoy's
// clock. Envoy reports all buckets every 5 s and truncates Elapsed to whole seconds. A multiple of
// 5 s counts as exact; another value, of the second report of a bucket, may be almost a second too
// small.
func (r *Report) envoyInterval() time.Duration {
	if r.Elapsed%(5*time.Second) != 0 {
		return r.Elapsed + time.Second
	}
	return r.Elapsed
}

// endAbandoning ends the abandoning of a bucket that still has requests. If a probed Envoy reports
// the bucket only after a time t, its demand is at most 3/t: at a greater demand, the first request
// would come so late with a probability below one in twenty.
func (s *share) endAbandoning(now Time) {
	if probedAt := s.expiry - probeTimeout; s.state&(probing|queued) == probing && s.maxRate == 0 && now > probedAt {
		s.demand = min(s.demand, float32(3/(now-probedAt).Seconds()))
	}
	s.state &^= abandoning | probing | queued
}

// setUnassigned records that the Envoy has no assignment. until is the time at which it gets
// DENY_ALL if there is no other assignment before.
func (s *share) setUnassigned(until Time) {
	s.state |= unassigned
	if s.maxRate == 0 {
		s.expiry = until
	}
}

// updateDemand updates the demand with the rate of an interval and the denied part of that rate. A
// rate that differs from the last one by more than chance counts as a step; other rates are
// smoothed.
func (s *share) updateDemand(rate, denied, seconds float32) {
	last, lastDenied := s.lastRate, s.lastRate*float32(s.deniedPart)/math.MaxUint8
	s.lastRate, s.deniedPart = rate, uint8(min(denied/max(rate, 1)*math.MaxUint8, math.MaxUint8))
	s.state &^= demandFell
	// chance is the standard deviation of the difference between two counts of a Poisson process,
	// as a rate.
	chance := func(a, b float32) float32 {
		return float32(math.Sqrt(float64(max((a+b)*seconds, 4)))) / seconds
	}
	differ := func(a, b float32) bool { return max(a-b, b-a) > 3*chance(a, b)+b/20 }
	if !s.has(measured) {
		s.demand = rate
		s.state |= measured
		return
	}
	if last-rate > 1.5*chance(rate, last) {
		s.state |= demandFell
	}
	switch {
	case differ(rate, last) && differ(s.demand, last) && (rate < last) == (s.demand < last):
		s.demand = rate // the rest of the last step
	case differ(rate, last):
		s.demand = estimateStep(rate, last, denied, lastDenied)
	case differ(rate, s.demand):
		s.demand = rate
	default:
		s.demand += (rate - s.demand) / 2
	}
}

// estimateStep estimates the rate after a step within an interval from the rates and the denied
// rates of that interval and of the last one. If many requests were denied in the last interval,
// the part that is still denied shows when the step was. Otherwise the step is assumed to be in the
// middle of the interval.
func estimateStep(rate, last, denied, lastDenied float32) float32 {
	if rate < last && lastDenied > last/8 && denied < lastDenied {
		part := min(denied/lastDenied, 0.9)
		return max((rate-part*last)/(1-part), 0)
	}
	return min(max(2*rate-last, rate/4), 4*rate)
}

// demandPerFill returns the demand in tokens per Fill, plus 2 %. Tokens for larger random variation
// come only from the part of the limit that no stream needs.
func (s *share) demandPerFill() float64 { return float64(s.demand) * 1.02 * Fill.Seconds() }
