package live

import "time"

const (
	// linePoints of linePoint each are five minutes.
	linePoints = 30
	linePoint  = 10 * time.Second
)

// Counts are hits so far, of one limit.
type Counts struct{ Hits, Denied, Near, Shadow uint64 }

func (c Counts) minus(o Counts) Counts {
	// A refund takes nothing off these, but a counter may begin anew.
	return Counts{
		Hits: c.Hits - min(c.Hits, o.Hits), Denied: c.Denied - min(c.Denied, o.Denied),
		Near: c.Near - min(c.Near, o.Near), Shadow: c.Shadow - min(c.Shadow, o.Shadow),
	}
}

// Rates remembers counts of the last five minutes. What K names has counts that only grow. One goroutine uses it at a
// time.
type Rates[K comparable] struct {
	series map[K]*series
	steps  uint64 // how many intervals have ended
	at     time.Time
}

type series struct {
	// marks are the counts at the ends of the last two intervals, the older one first.
	marks [2]Counts
	// begun is the counts at the last point's end, and line the points; the last one is at steps/2 - 1.
	begun Counts
	line  [linePoints]struct{ hits, denied uint32 }
	// last is the interval in which there were hits last.
	last uint64
}

// Step ends an interval at the time now, if it has lasted long enough. Read calls its argument with all that has counts.
func (r *Rates[K]) Step(now time.Time, read func(func(K, Counts))) {
	if now.Sub(r.at) < interval {
		return
	}
	if r.series == nil {
		r.series = map[K]*series{}
	}
	r.steps++
	r.at = now
	point := r.steps%uint64(linePoint/interval) == 0
	seen := func(k K, c Counts) {
		s := r.series[k]
		if s == nil {
			if c == (Counts{}) {
				return
			}
			s = &series{last: r.steps}
			if r.steps == 1 { // counted before anybody looked
				s.marks, s.begun = [2]Counts{c, c}, c
			}
			r.series[k] = s
		}
		if c != s.marks[1] {
			s.last = r.steps
		}
		s.marks[0], s.marks[1] = s.marks[1], c
		if point {
			d := c.minus(s.begun)
			s.begun = c
			s.line[r.steps/2%linePoints] = struct{ hits, denied uint32 }{clamp(d.Hits), clamp(d.Denied)}
		}
	}
	read(seen)
	for k, s := range r.series {
		if r.steps-s.last > uint64(linePoints*linePoint/interval) {
			delete(r.series, k)
		}
	}
}

func clamp(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// Rate returns hits a second over the last five to ten seconds of what has the counts c at the time now.
func (r *Rates[K]) Rate(k K, c Counts, now time.Time) Rate {
	since, elapsed := Counts{}, now.Sub(r.at)
	if s := r.series[k]; s != nil {
		since = s.marks[0]
		elapsed += interval
	}
	per := max(1, elapsed.Seconds())
	d := c.minus(since)
	return Rate{Hits: float64(d.Hits) / per, Denied: float64(d.Denied) / per, Near: float64(d.Near) / per, Shadow: float64(d.Shadow) / per}
}

// Known reports whether there were hits in the last five minutes, but for those of the last five seconds.
func (r *Rates[K]) Known(k K) bool { return r.series[k] != nil }

// Line returns the points of the last five minutes, nil if there were no hits.
func (r *Rates[K]) Line(k K) *Line {
	s := r.series[k]
	if s == nil {
		return nil
	}
	line := &Line{Seconds: int(linePoint.Seconds())}
	for i := range uint64(linePoints) {
		p := s.line[(r.steps/2+1+i)%linePoints]
		line.Hits, line.Denied = append(line.Hits, p.hits), append(line.Denied, p.denied)
	}
	return line
}
