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
func (s *share) addReport(now Time, r Report) {
	s.counted += float32(min(r.Allowed, maxCount)) + float32(min(r.Denied, maxCount))
	s.flags |= replyDue
	s.flags &^= denied
	if r.Denied > 0 {
		s.flags |= denied
	}
	hasRequests := r.Allowed+r.Denied > 0
	isFirst := r.Elapsed == 0 // the Envoy did not know the bucket, or has abandoned it
	stillUsed := s.abandonment == retired && s.outbox == queued && hasRequests
	if s.abandonment != kept && (isFirst || stillUsed) {
		s.endAbandonment(now)
	}
	if s.assignment == unknown && s.outbox != queued {
		if isFirst {
			s.setUnassigned(now + assignTimeout)
		} else {
			s.admitted = Rate(min(r.admittedRate(), int64(MaxRate)))
		}
	}
	s.idleReports = min(s.idleReports, 254) + 1
	if hasRequests {
		s.idleReports = 0
	}
	passed := r.interval(now - s.reported)
	if passed < minInterval {
		return
	}
	seconds := float32(passed.Seconds())
	s.updateDemand(s.counted/seconds, float32(min(r.Denied, maxCount))/seconds, seconds)
	s.counted = 0
	s.reported = now
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
// clock. Envoy reports all buckets every 5 s and truncates Elapsed to whole seconds. So a multiple
// of 5 s is exact. The second report of a bucket covers less than 5 s, and up to a second more than
// Elapsed.
func (r *Report) envoyInterval() time.Duration {
	if r.Elapsed%(5*time.Second) != 0 {
		return r.Elapsed + time.Second
	}
	return r.Elapsed
}

// endAbandonment keeps the share of a bucket that still has requests.
func (s *share) endAbandonment(now Time) {
	probedAt := s.deadline - probeTimeout
	if s.abandonment == probed && s.outbox != queued && s.maxRate == 0 && now > probedAt {
		// The probed Envoy had no request for a time t. At a demand above 3/t that happens with a
		// probability below one in twenty.
		s.demand = min(s.demand, float32(3/(now-probedAt).Seconds()))
	}
	s.abandonment = kept
	s.withdraw()
}

// setUnassigned records that the Envoy has no assignment. until is the time at which it gets
// DENY_ALL if there is no other assignment before.
func (s *share) setUnassigned(until Time) {
	s.assignment = unassigned
	s.deadline = until
}

// updateDemand updates the demand with the rate of an interval and the denied part of that rate. A
// rate that differs from the last one by more than chance counts as a step; other rates are
// smoothed.
func (s *share) updateDemand(rate, denied, seconds float32) {
	last := s.lastRate
	lastDenied := s.lastRate * float32(s.deniedPart) / math.MaxUint8
	s.lastRate = rate
	s.deniedPart = uint8(min(denied/max(rate, 1)*math.MaxUint8, math.MaxUint8))
	s.flags &^= demandFell
	// chance is the standard deviation of the difference between two counts of a Poisson process,
	// as a rate.
	chance := func(a, b float32) float32 {
		return float32(math.Sqrt(float64(max((a+b)*seconds, 4)))) / seconds
	}
	differ := func(a, b float32) bool { return max(a-b, b-a) > 3*chance(a, b)+b/20 }
	if !s.has(measured) {
		s.demand = rate
		s.flags |= measured
		return
	}
	if last-rate > 1.5*chance(rate, last) {
		s.flags |= demandFell
	}
	// A step within an interval changes the rates of that interval and of the next one, in the same
	// direction. The first change gives an estimate, and the second the rate after the step.
	isSecond := differ(s.demand, last) && (rate < last) == (s.demand < last)
	switch {
	case differ(rate, last) && !isSecond:
		s.demand = estimateStep(rate, last, denied, lastDenied)
	case differ(rate, last), differ(rate, s.demand):
		s.demand = rate
	default:
		s.demand += (rate - s.demand) / 2
	}
}

// estimateStep estimates the rate after a step within an interval from the rates and the denied
// rates of that interval and of the last one. If many requests were denied in the last interval, and
// none after the step, the denied rate has fallen to the part of the interval that was before the
// step. Otherwise the step is assumed to be in the middle of the interval.
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
