package limiter

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// A CalendarUnit is what a [Calendar] divides time into.
type CalendarUnit uint8

// The units of a calendar.
const (
	Days   CalendarUnit = iota // from midnight on
	Weeks                      // from Monday on, as in ISO 8601
	Months                     // from the anchor on
	Years                      // from 1 January on

	calendarUnits = iota
)

// A Calendar divides time into windows as the people of a place count them: days of 23 to 25 hours, months of
// 28 to 31 days. A window begins at the first instant whose local date is its first day or a later one: so a
// day whose midnight the clocks leave out begins when they go on, and one that has two begins at the first.
//
// A Calendar may be shared by any number of policies and goroutines.
type Calendar struct {
	unit   CalendarUnit
	zone   *time.Location
	anchor int
	near   atomic.Pointer[edges]
	all    *[calendarUnits]Calendar
}

// NewCalendar returns the calendar of a zone, by days. Months begin on the day anchor, 1..31, or on their last
// if they are shorter.
func NewCalendar(zone *time.Location, anchor int) *Calendar {
	all := new([calendarUnits]Calendar)
	for unit := range all {
		all[unit] = Calendar{unit: CalendarUnit(unit), zone: zone, anchor: anchor, all: all}
	}
	return &all[Days]
}

// WithUnit returns the calendar of the same zone and anchor that divides time into units.
func (c *Calendar) WithUnit(unit CalendarUnit) *Calendar { return &c.all[unit] }

// Unit returns what c divides time into.
func (c *Calendar) Unit() CalendarUnit { return c.unit }

// Zone returns the place whose calendar it is.
func (c *Calendar) Zone() *time.Location { return c.zone }

// Anchor returns the day of a month that windows begin on, 1..31; 1 for other units.
func (c *Calendar) Anchor() int {
	if c.unit != Months {
		return 1
	}
	return c.anchor
}

func (c *Calendar) validate(p *Policy) error {
	if p.Algorithm != FixedWindow && p.Algorithm != SlidingWindow {
		return fmt.Errorf("a calendar has no meaning under algorithm %d", p.Algorithm)
	}
	if c.anchor < 1 || c.anchor > 31 {
		return fmt.Errorf("months from day %d on: must be 1 to 31", c.anchor)
	}
	return nil
}

// Window returns when the window begins and ends that the time lies in.
func (c *Calendar) Window(at Time) (start, end Time) {
	e, i := c.now(at.seconds())
	return Time(e.starts[i] * int64(time.Second)), Time(e.starts[i+1] * int64(time.Second))
}

// WindowsAround returns when windows around the time begin, in Unix seconds: the present one with two before and two behind it, or
// a little further behind. The last is the end of the last window. first is the number of the first.
func (c *Calendar) WindowsAround(at Time) (first int64, starts []int64) {
	e, _ := c.now(at.seconds())
	return e.first, e.starts[:]
}

// end is Window's end in Unix seconds.
func (c *Calendar) end(at Time) int64 {
	e, i := c.now(at.seconds())
	return e.starts[i+1]
}

// isLive reports whether the hits of a fixed window count that ends left seconds after the second of at.
func (c *Calendar) isLive(left int64, at Time) bool {
	if left == 0 || left > liveSpan {
		return false
	}
	e, i := c.then(at.seconds() + left - 1)
	return e.starts[i]-at.seconds() <= mostAhead // in seconds, since the nanoseconds of the earliest times are out of range
}

// Edges are what is remembered of a calendar: some windows that follow each other, of which the one in the
// middle was the present one. They never change, and any two that hold a time agree on it, so that callers
// whose clocks differ share them. Few instants need others.
type edges struct {
	first  int64             // the number of the window that starts[0] begins
	starts [nearby + 1]int64 // Unix seconds, and the end of the last
}

// nearby is how many windows are remembered: late callers, and what hits of a ring count until, which may lie
// two windows ahead, find theirs.
const nearby = 5

// at returns which of e's windows holds the Unix second. It is out of range if none does.
func (e *edges) at(second int64) int {
	const middle = nearby / 2
	if e.starts[middle] <= second && second < e.starts[middle+1] {
		return middle
	}
	i := -1
	for i < nearby && e.starts[i+1] <= second {
		i++
	}
	return i
}

// now returns the window of the Unix second, and moves to it once what is remembered lies in the past.
func (c *Calendar) now(second int64) (*edges, int) {
	if e := c.near.Load(); e != nil {
		if i := e.at(second); i >= 0 && i <= nearby/2 {
			return e, i
		}
	}
	e := c.around(second)
	c.near.Store(e)
	return e, nearby / 2
}

// then is now for times that are not the present.
func (c *Calendar) then(second int64) (*edges, int) {
	if e := c.near.Load(); e != nil {
		if i := e.at(second); i >= 0 && i < nearby {
			return e, i
		}
	}
	return c.around(second), nearby / 2
}

// around returns the windows around the one of the Unix second.
func (c *Calendar) around(second int64) *edges {
	number := c.number(second)
	e := &edges{first: number - nearby/2}
	for i := range e.starts {
		e.starts[i] = c.start(e.first + int64(i))
	}
	return e
}

// number returns the number of the window that holds the Unix second. Numbers count from 1970 on.
func (c *Calendar) number(second int64) (number int64) {
	year, month, day := time.Unix(second, 0).In(c.zone).Date()
	switch c.unit {
	case Days:
		number = epochDay(year, month, day)
	case Weeks:
		number = floorDiv(epochDay(year, month, day)+monday, 7)
	case Months:
		number = int64(year-1970)*12 + int64(month) - 1
	default:
		number = int64(year - 1970)
	}
	for c.start(number) > second { // before the anchor
		number--
	}
	for c.start(number+1) <= second { // the local date is one that has been before
		number++
	}
	return number
}

// monday is how many days before the epoch, a Thursday, its week began.
const monday = 3

// start returns when a window begins, in Unix seconds.
func (c *Calendar) start(number int64) int64 {
	switch c.unit {
	case Days:
		return c.midnight(number)
	case Weeks:
		return c.midnight(number*7 - monday)
	case Months:
		year, month := 1970+int(floorDiv(number, 12)), time.Month(floorMod(number, 12)+1)
		last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return c.midnight(epochDay(year, month, min(c.anchor, last)))
	default:
		return c.midnight(epochDay(1970+int(number), time.January, 1))
	}
}

const daySeconds = 24 * 3600

// epochDay returns how many days after 1 January 1970 a date is.
func epochDay(year int, month time.Month, day int) int64 {
	return floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), daySeconds)
}

// midnight returns the first Unix second whose local date is the day or a later one. It looks through the
// times between which the zone's offset stays as it is, of which the first begins while it is an earlier day
// everywhere.
func (c *Calendar) midnight(day int64) int64 {
	utc := day * daySeconds
	for t := time.Unix(utc-daySeconds, 0).In(c.zone); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // as Go 1.26 has it on the last day of leap years that a zone's rules are for
			end = t.Add(daySeconds * time.Second)
		}
		if first := max(utc-int64(offset), t.Unix()); end.IsZero() || first < end.Unix() {
			return first
		}
		t = end
	}
}

// A sliding window divides each window of a calendar into k parts, which begin at whole seconds and differ by one at
// most. They are numbered through all windows: part 3 of a month is number 3 of that month, however long it is.

// part returns the number of the part that the time lies in.
func (c *Calendar) part(stamp, k int64) int64 {
	second := floorDiv(stamp, int64(time.Second))
	e, i := c.now(second)
	return e.part(i, second, k)
}

// head returns the part that a ring was hit in last, whose hits cease to count at end. Nothing of it counts if
// that has passed.
func (c *Calendar) head(end, now, k int64) int64 {
	if end <= now {
		return math.MinInt64 / 2
	}
	second := end / int64(time.Second)
	e, i := c.then(second)
	return e.part(i, second, k) - k - 1
}

// part returns the number of the part of window i that the second lies in.
func (e *edges) part(i int, second, k int64) int64 {
	length := e.starts[i+1] - e.starts[i]
	return (e.first+int64(i))*k + ((second-e.starts[i]+1)*k-1)/length
}

// partStart returns when a part begins.
func (c *Calendar) partStart(number, k int64) int64 {
	window, part := floorDiv(number, k), floorMod(number, k)
	var start, end int64
	if e := c.near.Load(); e != nil && window >= e.first && window < e.first+nearby {
		start, end = e.starts[window-e.first], e.starts[window-e.first+1]
	} else {
		start, end = c.start(window), c.start(window+1)
	}
	return (start + part*(end-start)/k) * int64(time.Second)
}
