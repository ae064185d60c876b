package live

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const (
	// A line has linePoints points of length linePoint: five minutes.
	linePoints = 30
	linePoint  = 10 * time.Second
)

// Counts contains the total hits of a limit. Hits are those that were charged to it or denied by it.
type Counts struct{ Hits, Denied, Near, Shadow uint64 }

// Plus returns the sum of two counts, saturating like the counters.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		Hits: limiter.SaturatingAdd(c.Hits, o.Hits), Denied: limiter.SaturatingAdd(c.Denied, o.Denied),
		Near: limiter.SaturatingAdd(c.Near, o.Near), Shadow: limiter.SaturatingAdd(c.Shadow, o.Shadow),
	}
}

func (c Counts) minus(o Counts) Counts {
	// Refunds do not decrease the counts, but a counter may have been replaced by a new one.
	return Counts{
		Hits: c.Hits - min(c.Hits, o.Hits), Denied: c.Denied - min(c.Denied, o.Denied),
		Near: c.Near - min(c.Near, o.Near), Shadow: c.Shadow - min(c.Shadow, o.Shadow),
	}
}

// Rates computes the rates of counters, and records their hits of the last five minutes. K is the
// name of a counter. Counters start at 0 and never decrease. Rates must be used by one goroutine at
// a time.
type Rates[K comparable] struct {
	period telemetry.Period
	series map[K]*series
	steps  uint64 // number of completed intervals
}

type series struct {
	// marks contains the counts at the ends of the last two intervals, the older one first.
	marks [2]Counts
	// seen is the last interval for which counts were read, and last the last interval in which
	// they grew.
	seen, last uint64
	line       *points // nil if the counts did not grow for five minutes
}

// points contains the points of the last five minutes. A point covers two intervals. The point that
// ends with interval n, an even number, has the index n/2 % linePoints.
type points struct {
	base Counts // counts at the end of the newest point
	line [linePoints]struct{ hits, denied uint32 }
}

// Advance ends the interval at the time now if it has lasted for five seconds. read must call its
// argument with the current counts of each name. A name without counts is forgotten.
func (r *Rates[K]) Advance(now time.Time, read func(func(K, Counts))) {
	if !r.period.Advance(now) {
		return
	}
	if r.series == nil {
		r.series = map[K]*series{}
	}
	r.steps++
	read(r.record)
	for k, s := range r.series {
		if s.seen != r.steps {
			delete(r.series, k)
		}
		if r.steps-s.last > uint64(linePoints*linePoint/interval) {
			s.line = nil
		}
	}
}

// record adds the counts of a name at the end of an interval. Limits may share counters, so a name
// may occur several times.
func (r *Rates[K]) record(k K, c Counts) {
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
			s.line = &points{base: s.marks[1]}
		}
	}
	s.marks[0] = s.marks[1]
	s.marks[1] = c
	if s.line != nil && r.steps%uint64(linePoint/interval) == 0 {
		d := c.minus(s.line.base)
		s.line.base = c
		s.line.line[r.steps/2%linePoints] = struct{ hits, denied uint32 }{clamp(d.Hits), clamp(d.Denied)}
	}
}

func clamp(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// Rate returns the rate over the last five to ten seconds for a name with the counts c at the time
// now. known is true if the counts grew in the last five minutes before the current interval.
func (r *Rates[K]) Rate(k K, c Counts, now time.Time) (rate Rate, known bool) {
	base := Counts{}
	if s := r.series[k]; s != nil {
		base = s.marks[0]
		known = s.line != nil
	}
	if c == base {
		return Rate{}, known
	}
	length := r.period.Seconds(now)
	d := c.minus(base)
	return Rate{
		Hits: float64(d.Hits) / length, Denied: float64(d.Denied) / length, Near: float64(d.Near) / length, Shadow: float64(d.Shadow) / length,
	}, known
}

// Line returns the sum of the lines of all names, or nil if there were no hits in the last five
// minutes.
func (r *Rates[K]) Line(names ...K) (sum *Line) {
	for _, k := range names {
		s := r.series[k]
		if s == nil || s.line == nil {
			continue
		}
		line := &Line{Seconds: int(linePoint.Seconds())}
		for i := range uint64(linePoints) {
			p := s.line.line[(r.steps/2+1+i)%linePoints]
			line.Hits = append(line.Hits, p.hits)
			line.Denied = append(line.Denied, p.denied)
		}
		sum = sum.add(line)
	}
	return sum
}
