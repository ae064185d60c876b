package live

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// linePoints of linePoint each are five minutes.
	linePoints = 30
	linePoint  = 10 * time.Second
)

// Counts are hits so far, of one limit.
type Counts struct{ Hits, Denied, Near, Shadow uint64 }

// Plus returns the sums of two counts. Counters stop at 2^64-1, and so do sums of them.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		Hits: limiter.SaturatingAdd(c.Hits, o.Hits), Denied: limiter.SaturatingAdd(c.Denied, o.Denied),
		Near: limiter.SaturatingAdd(c.Near, o.Near), Shadow: limiter.SaturatingAdd(c.Shadow, o.Shadow),
	}
}

func (c Counts) minus(o Counts) Counts {
	// A refund takes nothing off these, but a counter may begin anew.
	return Counts{
		Hits: c.Hits - min(c.Hits, o.Hits), Denied: c.Denied - min(c.Denied, o.Denied),
		Near: c.Near - min(c.Near, o.Near), Shadow: c.Shadow - min(c.Shadow, o.Shadow),
	}
}

// Rates remembers counts of the last five minutes. What K names has counts that only grow, from 0 when it is first there. One goroutine uses it at a
// time.
type Rates[K comparable] struct {
	series map[K]*series
	steps  uint64 // how many intervals have ended
	// at is when the last one ended, and lasted how long it was. called is when Step was called last.
	at, called time.Time
	lasted     time.Duration
}

type series struct {
	// marks are the counts at the ends of the last two intervals, the older one first.
	marks [2]Counts
	// seen is the last interval in which there were counts, and last the one in which they grew.
	seen, last uint64
	line       *points // nil if they did not grow for five minutes
}

// points are those of the last five minutes; the newest ended with the interval of an even number, n, and is at
// n/2 % linePoints.
type points struct {
	begun Counts // at the newest point's end
	line  [linePoints]struct{ hits, denied uint32 }
}

// Step ends an interval at the time now, if it has lasted long enough. Read calls its argument with all that has counts;
// what it no longer has is forgotten.
func (r *Rates[K]) Step(now time.Time, read func(func(K, Counts))) {
	passed, called := now.Sub(r.at), r.called
	r.called = now
	switch {
	case passed < interval && passed > -interval:
		return
	case r.at.IsZero():
		passed = interval
	case passed < 0 || passed > 2*interval: // the clock was set, or nothing ran
		passed = max(time.Second, called.Sub(r.at))
	}
	r.lasted = passed
	if r.series == nil {
		r.series = map[K]*series{}
	}
	r.steps++
	r.at = now
	read(r.step)
	for k, s := range r.series {
		if s.seen != r.steps {
			delete(r.series, k)
		}
		if r.steps-s.last > uint64(linePoints*linePoint/interval) {
			s.line = nil
		}
	}
}

// step ends an interval of what has the counts c. Limits may share counters, so a name may come several times.
func (r *Rates[K]) step(k K, c Counts) {
	s := r.series[k]
	if s == nil {
		s = &series{}
		r.series[k] = s
	}
	if s.seen == r.steps {
		return
	}
	s.seen = r.steps
	if c != s.marks[1] {
		s.last = r.steps
		if s.line == nil {
			s.line = &points{begun: s.marks[1]}
		}
	}
	s.marks[0], s.marks[1] = s.marks[1], c
	if s.line != nil && r.steps%uint64(linePoint/interval) == 0 {
		d := c.minus(s.line.begun)
		s.line.begun = c
		s.line.line[r.steps/2%linePoints] = struct{ hits, denied uint32 }{clamp(d.Hits), clamp(d.Denied)}
	}
}

func clamp(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// Rate returns hits a second over the last five to ten seconds of what has the counts c at the time now, and
// whether there were hits in the last five minutes, but for those of the last five seconds.
func (r *Rates[K]) Rate(k K, c Counts, now time.Time) (rate Rate, known bool) {
	since := Counts{}
	if s := r.series[k]; s != nil {
		since, known = s.marks[0], s.line != nil
	}
	if c == since {
		return Rate{}, known
	}
	per := (max(0, now.Sub(r.at)) + r.lasted).Seconds()
	d := c.minus(since)
	return Rate{Hits: float64(d.Hits) / per, Denied: float64(d.Denied) / per, Near: float64(d.Near) / per, Shadow: float64(d.Shadow) / per}, known
}

// Line returns the sum of the points of the last five minutes of all that is named, nil if there were no hits.
func (r *Rates[K]) Line(names ...K) (sum *Line) {
	for _, k := range names {
		s := r.series[k]
		if s == nil || s.line == nil {
			continue
		}
		line := &Line{Seconds: int(linePoint.Seconds())}
		for i := range uint64(linePoints) {
			p := s.line.line[(r.steps/2+1+i)%linePoints]
			line.Hits, line.Denied = append(line.Hits, p.hits), append(line.Denied, p.denied)
		}
		sum = sum.plus(line)
	}
	return sum
}
