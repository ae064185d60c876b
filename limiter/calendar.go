package limiter

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// A CalendarUnit is the length of the windows of a [Calendar].
type CalendarUnit uint8

// The units of a calendar.
const (
	Days   CalendarUnit = iota // midnight to midnight
	Weeks                      // from Monday, as in ISO 8601
	Months                     // from the anchor day
	Years                      // from 1 January

	calendarUnits = iota
)

// A Calendar divides time into windows by the local date of a time zone: days of 23 to 25 hours,
// months of 28 to 31 days. A window begins at the first instant whose local date is its first day
// or later. If a clock change skips midnight, the day begins at the change; if midnight occurs
// twice, it begins at the first one.
//
// A Calendar may be shared by any number of policies and goroutines.
type Calendar struct {
	unit   CalendarUnit
	zone   *time.Location
	anchor int
	cached atomic.Pointer[windowCache]
	byUnit *[calendarUnits]Calendar
}

// NewCalendar returns a calendar of days in a time zone. Months begin on the day anchor, 1..31, or
// on their last day if they are shorter.
func NewCalendar(zone *time.Location, anchor int) *Calendar {
	all := new([calendarUnits]Calendar)
	for unit := range all {
		all[unit] = Calendar{unit: CalendarUnit(unit), zone: zone, anchor: anchor, byUnit: all}
	}
	return &all[Days]
}

// WithUnit returns the calendar with the same zone and anchor and the given unit.
func (c *Calendar) WithUnit(unit CalendarUnit) *Calendar { return &c.byUnit[unit] }

// Unit returns the unit of c.
func (c *Calendar) Unit() CalendarUnit { return c.unit }

// Zone returns the time zone of c.
func (c *Calendar) Zone() *time.Location { return c.zone }

// Anchor returns the day of the month on which windows begin, 1..31; 1 for other units.
func (c *Calendar) Anchor() int {
	if c.unit != Months {
		return 1
	}
	return c.anchor
}

func (c *Calendar) validate(p *Policy) error {
	if p.Algorithm != FixedWindow && p.Algorithm != SlidingWindow {
		return fmt.Errorf("calendar: not supported by algorithm %d", p.Algorithm)
	}
	if c.anchor < 1 || c.anchor > 31 {
		return fmt.Errorf("month anchor %d: must be 1 to 31", c.anchor)
	}
	return nil
}

// Window returns the start and the end of the window that contains the time.
func (c *Calendar) Window(at Time) (start, end Time) {
	e, i := c.currentWindow(at.seconds())
	return Time(e.starts[i] * int64(time.Second)), Time(e.starts[i+1] * int64(time.Second))
}

// WindowsAround returns the starts of the windows around the time, in Unix seconds: usually the
// current one, two before and two after it. The last element is the end of the last window. first
// is the number of the first window.
func (c *Calendar) WindowsAround(at Time) (first int64, starts []int64) {
	e, _ := c.currentWindow(at.seconds())
	return e.first, e.starts[:]
}

// windowEnd returns the end of the window that contains the time, in Unix seconds.
func (c *Calendar) windowEnd(at Time) int64 {
	e, i := c.currentWindow(at.seconds())
	return e.starts[i+1]
}

// isLive reports whether the hits of a fixed window still count, given that it ends left seconds
// after at, rounded down to seconds.
func (c *Calendar) isLive(left int64, at Time) bool {
	if left == 0 || left > liveSpan {
		return false
	}
	e, i := c.anyWindow(at.seconds() + left - 1)
	return e.starts[i]-at.seconds() <= maxAhead // in seconds, since nanoseconds of the earliest times overflow
}

// A windowCache contains consecutive windows of a calendar; the one in the middle was current when
// it was computed. It is immutable. Different caches agree on every window, so callers with
// different clocks can share one.
type windowCache struct {
	first  int64                    // number of the first window
	starts [cachedWindows + 1]int64 // in Unix seconds; the last is the end of the last window
}

// cachedWindows is the number of windows in a cache: enough for late callers, and for the end of
// hits in a ring, which may be two windows ahead.
const cachedWindows = 5

// index returns the index of the window that contains the Unix second. It is out of range if the
// cache lacks that window.
func (e *windowCache) index(second int64) int {
	const middle = cachedWindows / 2
	if e.starts[middle] <= second && second < e.starts[middle+1] {
		return middle
	}
	i := -1
	for i < cachedWindows && e.starts[i+1] <= second {
		i++
	}
	return i
}

// currentWindow returns the window of the Unix second, and replaces the cache if the second is
// after its middle window.
func (c *Calendar) currentWindow(second int64) (*windowCache, int) {
	if e := c.cached.Load(); e != nil {
		if i := e.index(second); i >= 0 && i <= cachedWindows/2 {
			return e, i
		}
	}
	e := c.windowsNear(second)
	c.cached.Store(e)
	return e, cachedWindows / 2
}

// anyWindow is currentWindow for times other than now; it does not replace the cache.
func (c *Calendar) anyWindow(second int64) (*windowCache, int) {
	if e := c.cached.Load(); e != nil {
		if i := e.index(second); i >= 0 && i < cachedWindows {
			return e, i
		}
	}
	return c.windowsNear(second), cachedWindows / 2
}

// windowsNear computes the windows around the one of the Unix second.
func (c *Calendar) windowsNear(second int64) *windowCache {
	number := c.windowNumber(second)
	e := &windowCache{first: number - cachedWindows/2}
	for i := range e.starts {
		e.starts[i] = c.windowStart(e.first + int64(i))
	}
	return e
}

// windowNumber returns the number of the window that contains the Unix second. Window 0 contains
// the start of 1970, except for months, where it begins at the anchor in January 1970.
func (c *Calendar) windowNumber(second int64) (number int64) {
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
	for c.windowStart(number) > second { // before the anchor
		number--
	}
	for c.windowStart(number+1) <= second { // the local date has occurred before
		number++
	}
	return number
}

// monday is the number of days from the Monday before the epoch, a Thursday, to the epoch.
const monday = 3

// windowStart returns when a window begins, in Unix seconds.
func (c *Calendar) windowStart(number int64) int64 {
	switch c.unit {
	case Days:
		return c.midnight(number)
	case Weeks:
		return c.midnight(number*7 - monday)
	case Months:
		year := 1970 + int(floorDiv(number, 12))
		month := time.Month(floorMod(number, 12) + 1)
		last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return c.midnight(epochDay(year, month, min(c.anchor, last)))
	default:
		return c.midnight(epochDay(1970+int(number), time.January, 1))
	}
}

const daySeconds = 24 * 3600

// epochDay returns the number of days from 1 January 1970 to a date.
func epochDay(year int, month time.Month, day int) int64 {
	return floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), daySeconds)
}

// midnight returns the first Unix second whose local date is the given day or later. It iterates
// over the intervals of constant zone offset, from one that begins while it is an earlier day
// everywhere.
func (c *Calendar) midnight(day int64) int64 {
	utc := day * daySeconds
	for t := time.Unix(utc-daySeconds, 0).In(c.zone); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // Go 1.26 returns this on the last day of leap years covered by a zone's rules
			end = t.Add(daySeconds * time.Second)
		}
		if first := max(utc-int64(offset), t.Unix()); end.IsZero() || first < end.Unix() {
			return first
		}
		t = end
	}
}

// A sliding window divides each window of a calendar into k parts, which begin at whole seconds and
// differ in length by at most one second. Parts are numbered consecutively: part i of window n has
// the number n*k + i.

// partAt returns the number of the part that contains the time.
func (c *Calendar) partAt(stamp, k int64) int64 {
	second := floorDiv(stamp, int64(time.Second))
	e, i := c.currentWindow(second)
	return e.part(i, second, k)
}

// ringHead returns the newest part with hits of a ring, whose hits cease to count at end. If end
// has passed, it returns a number for which nothing counts.
func (c *Calendar) ringHead(end, now, k int64) int64 {
	if end <= now {
		return math.MinInt64 / 2
	}
	second := end / int64(time.Second)
	e, i := c.anyWindow(second)
	return e.part(i, second, k) - k - 1
}

// part returns the number of the part of window i that contains the second.
func (e *windowCache) part(i int, second, k int64) int64 {
	length := e.starts[i+1] - e.starts[i]
	return (e.first+int64(i))*k + ((second-e.starts[i]+1)*k-1)/length
}

// partStart returns when a part begins.
func (c *Calendar) partStart(number, k int64) int64 {
	window := floorDiv(number, k)
	part := floorMod(number, k)
	var start, end int64
	if e := c.cached.Load(); e != nil && window >= e.first && window < e.first+cachedWindows {
		start = e.starts[window-e.first]
		end = e.starts[window-e.first+1]
	} else {
		start = c.windowStart(window)
		end = c.windowStart(window + 1)
	}
	return (start + part*(end-start)/k) * int64(time.Second)
}
