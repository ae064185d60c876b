package quota

import (
	"math"
	"time"
)

// shortest is the shortest interval that says something about a rate.
const shortest = 250 * time.Millisecond

// mostJitter bounds the usual difference between the delays of two reports.
const mostJitter = 500 * time.Millisecond

// mostCounted bounds the counts of a report.
const mostCounted = 1 << 30

// report takes in a report.
func (s *share) report(now, patience Time, r Report) {
	s.counted += float32(min(r.Allowed, mostCounted)) + float32(min(r.Denied, mostCounted))
	s.state |= answer
	s.state &^= hungry
	if r.Denied > 0 {
		s.state |= hungry
	}
	if s.is(abandoning) && (r.Elapsed == 0 || s.state&(queued|asked) == queued && r.Allowed+r.Denied > 0) {
		s.answered(now)
	}
	if r.Elapsed == 0 && s.state&(assigned|queued|fresh) == 0 {
		s.renew(now + patience)
	}
	if s.state&(assigned|queued|asked|fresh) == 0 && r.Elapsed > 0 {
		s.next = Rate(min(r.admitted(), int64(MaxRate)))
	}
	s.idle = min(s.idle, 254) + 1
	if r.Allowed+r.Denied > 0 {
		s.idle = 0
	}
	passed := r.interval(now - s.reported)
	if passed < shortest {
		return
	}
	seconds := float32(passed.Seconds())
	s.estimate(s.counted/seconds, float32(min(r.Denied, mostCounted))/seconds, seconds)
	s.counted, s.reported = 0, now
}

// interval returns the length of the interval that a report covers: the time that has passed since the last report, or the time
// by the holder's clock if one of the two reports was read late.
func (r *Report) interval(passed Time) Time {
	if r.Elapsed > 0 && (passed < r.Elapsed-mostJitter || passed > r.Elapsed+time.Second+mostJitter) {
		return r.span()
	}
	return passed
}

// span returns the time since the last report of the bucket by the holder's clock. Envoy reports all buckets every 5 s and cuts off
// fractions of a second. The second report of a bucket comes at the next of these times.
func (r *Report) span() time.Duration {
	if r.Elapsed%(5*time.Second) != 0 {
		return r.Elapsed + time.Second
	}
	return r.Elapsed
}

// answered says that a bucket that was abandoned has requests. If a holder that was asked took a while,
// it has few: requests at three times that rate would come so late once in twenty times.
func (s *share) answered(now Time) {
	if asking := s.until - patienceAsked; s.state&(asked|queued) == asked && s.high == 0 && now > asking {
		s.demand = min(s.demand, float32(3/(now-asking).Seconds()))
	}
	s.state &^= abandoning | asked | queued
}

// renew says that the holder has no assignment. It waits for one until its patience ends.
func (s *share) renew(until Time) {
	s.state |= fresh
	if s.high == 0 {
		s.until = until
	}
}

// estimate takes in the rate of an interval, and that of what was denied. A rate that differs from the last one by more
// than chance is taken for a step. Others are smoothed.
func (s *share) estimate(rate, denied, seconds float32) {
	last, before := s.last, s.last*float32(s.refused)/math.MaxUint8
	s.last, s.refused = rate, uint8(min(denied/max(rate, 1)*math.MaxUint8, math.MaxUint8))
	s.state &^= fell
	// chance is how far apart equal rates of requests that come by chance are.
	chance := func(a, b float32) float32 {
		return float32(math.Sqrt(float64(max((a+b)*seconds, 4)))) / seconds
	}
	differ := func(a, b float32) bool { return max(a-b, b-a) > 3*chance(a, b)+b/20 }
	if !s.is(measured) {
		s.demand = rate
		s.state |= measured
		return
	}
	if last-rate > 1.5*chance(rate, last) {
		s.state |= fell
	}
	switch {
	case differ(rate, last) && differ(s.demand, last) && (rate < last) == (s.demand < last):
		s.demand = rate // the rest of the last step
	case differ(rate, last):
		s.demand = step(rate, last, denied, before)
	case differ(rate, s.demand):
		s.demand = rate
	default:
		s.demand += (rate - s.demand) / 2
	}
}

// step returns the rate behind a step in an interval, of which the rate is known, that in the interval before it, and what
// was denied in both. The interval's part before the step is what is left of the denials; where there were few, nothing
// tells, and it is taken for a half.
func step(rate, last, denied, before float32) float32 {
	if rate < last && before > last/8 && denied < before {
		part := min(denied/before, 0.9)
		return max((rate-part*last)/(1-part), 0)
	}
	return min(max(2*rate-last, rate/4), 4*rate)
}

// wanted returns the rate that a share is to get if it can, in tokens per Fill: its demand and a little
// more. Leeway for chance comes of what is left: if nothing is, others need it more.
func (s *share) wanted() float64 { return float64(s.demand) * 1.02 * Fill.Seconds() }
