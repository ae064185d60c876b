package quota

import (
	"math"
	"time"
)

// shortest is the shortest interval that says something about a rate.
const shortest = 250 * time.Millisecond

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
		s.next = Rate(min(r.admitted(), int64(MaxRate))) //nolint:gosec // bounded
	}
	s.idle = min(s.idle, 254) + 1
	if r.Allowed+r.Denied > 0 {
		s.idle = 0
	}
	passed := now - s.reported
	if passed < shortest {
		return
	}
	s.estimate(s.counted/float32(passed.Seconds()), float32(passed.Seconds()))
	s.counted, s.reported = 0, now
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

// estimate takes in the rate of an interval. One that differs from the last by more than chance is
// taken for a step within the interval, so what comes next lies beyond it. Others are smoothed.
func (s *share) estimate(rate, seconds float32) {
	last := s.last
	s.last = rate
	s.state &^= fell
	// chance is how far apart equal rates of requests that come by chance are.
	chance := func(other float32) float32 {
		return float32(math.Sqrt(float64(max((rate+other)*seconds, 4)))) / seconds
	}
	differ := func(other float32) bool { return max(rate-other, other-rate) > 3*chance(other)+other/20 }
	if !s.is(measured) {
		s.demand = rate
		s.state |= measured
		return
	}
	if last-rate > 1.5*chance(last) {
		s.state |= fell
	}
	switch {
	case differ(last):
		s.demand = min(max(2*rate-last, rate/4), 4*rate)
	case differ(s.demand):
		s.demand = rate
	default:
		s.demand += (rate - s.demand) / 2
	}
}

// wanted returns the rate that a share is to get if it can, in tokens per Fill: its demand and a little
// more. Leeway for chance comes of what is left: if nothing is, others need it more.
func (s *share) wanted() float64 { return float64(s.demand) * 1.02 * Fill.Seconds() }
