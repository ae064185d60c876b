package rules

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// calendarUnits maps the units that have calendar windows.
var calendarUnits = map[Unit]limiter.CalendarUnit{
	Day: limiter.Days, Week: limiter.Weeks, Month: limiter.Months, Year: limiter.Years,
}

// calendarKey is a time zone and the first day of its months.
type calendarKey struct {
	zone   string
	anchor int
}

// calendars caches calendars, so that all limits with the same time zone and anchor share one.
var calendars struct {
	sync.Mutex
	of map[calendarKey]*limiter.Calendar
}

// calendarOf returns the calendar for a time zone and anchor day. Its unit is days.
func calendarOf(zone string, anchor uint32) (*limiter.Calendar, error) {
	at := calendarKey{cmp.Or(zone, "UTC"), max(1, int(anchor))}
	calendars.Lock()
	defer calendars.Unlock()
	if c := calendars.of[at]; c != nil {
		return c, nil
	}
	location, err := loadZone(at.zone)
	if err != nil {
		return nil, err
	}
	if calendars.of == nil {
		calendars.of = map[calendarKey]*limiter.Calendar{}
	}
	c := limiter.NewCalendar(location, at.anchor)
	calendars.of[at] = c
	return c, nil
}

// loadZone returns the zone with an IANA name; "" is UTC. It rejects "Local", which depends on the
// machine.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`"Local" depends on the machine`)
	}
	return time.LoadLocation(name)
}

// ZoneMistake returns why a timezone is invalid, or "".
func ZoneMistake(name string) string {
	if _, err := loadZone(name); err != nil {
		return fmt.Sprintf("unknown timezone %q (allowed: an IANA name, such as Europe/Berlin, America/New_York, Etc/GMT-2 or UTC)", Shorten(name))
	}
	return ""
}

// calendar returns the calendar of a limit without mistakes, or nil.
func (l *Limit) calendar() *limiter.Calendar {
	unit, ok := calendarUnits[l.Unit]
	if !ok || !ValueOr(l.Calendar, false) || l.UnitMultiplier > 1 {
		return nil
	}
	c, err := calendarOf(l.Timezone, l.AnchorDay)
	if err != nil {
		return nil
	}
	return c.WithUnit(unit)
}

func (l *Limit) checkCalendar(all *mistakes) {
	if !ValueOr(l.Calendar, false) {
		const alone = `%q has no effect without "calendar: true"`
		if l.Timezone != "" {
			all.misplaced("timezone", alone, "timezone")
		}
		if l.AnchorDay > 0 {
			all.misplaced("anchor_day", alone, "anchor_day")
		}
		return
	}
	_, has := calendarUnits[l.Unit]
	switch a := l.algorithm(); {
	case !has:
		all.misplaced("calendar",
			`"calendar" is not supported for unit %s; it requires unit day, week, month or year`, l.Unit)
	case l.UnitMultiplier > 1:
		all.misplaced("calendar",
			`"calendar" requires one %s, not %s, whose start would be undefined; remove unit_multiplier`, l.Unit, WindowText(l.Unit, l.UnitMultiplier))
	case a != limiter.FixedWindow && a != limiter.SlidingWindow:
		all.misplaced("calendar", `"calendar" is not supported by algorithm %s; it requires "algorithm: fixed_window" or "algorithm: sliding_window"`, AlgorithmName(a))
	}
	if l.AnchorDay > 0 && l.Unit != Month {
		all.misplaced("anchor_day",
			`"anchor_day" is the first day of a month and is not supported for unit %s: %s`, l.Unit, windowStarts[l.Unit])
	}
	if text := ZoneMistake(l.Timezone); text != "" {
		all.wrong("timezone", "%s", text)
	}
}

// windowStarts describe when calendar windows begin.
var windowStarts = map[Unit]string{
	Day: "a day begins at midnight", Week: "a week begins on Monday", Year: "a year begins on 1 January",
}

// appendCalendar appends a calendar's zone and anchor: @Europe/Berlin, and @15 for months that
// begin on day 15.
func appendCalendar(dst []byte, c *limiter.Calendar) []byte {
	if c == nil {
		return dst
	}
	dst = append(append(dst, '@'), c.Zone().String()...)
	if c.Anchor() > 1 {
		dst = strconv.AppendInt(append(dst, '@'), int64(c.Anchor()), 10)
	}
	return dst
}

// calendarBits returns the bits that a calendar changes in a [CounterKind]: those of the window, by
// a hash. A test checks that the hashes of all zones and anchor days differ.
func calendarBits(c *limiter.Calendar) uint64 {
	const mark, window = 1 << 49, 1<<32 - 1
	if c == nil {
		return 0
	}
	hash := uint64(14695981039346656037) // FNV-1a, as in hash/fnv, which allocates
	for _, b := range appendCalendar(make([]byte, 0, 64), c) {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	return mark | hash&(window|^uint64(mark<<1-1))
}

// CalendarFields returns the fields of a calendar, each after a comma, or "" for nil.
func CalendarFields(c *limiter.Calendar) string {
	if c == nil {
		return ""
	}
	text := ", calendar: true, timezone: " + c.Zone().String()
	if c.Anchor() > 1 {
		text += ", anchor_day: " + strconv.Itoa(c.Anchor())
	}
	return text
}

// UseCalendarMonth sets calendar (in UTC) on a limit of unit month that does not have the field and
// can have it.
func (l *Limit) UseCalendarMonth() {
	changed := *l
	changed.Calendar = new(true)
	var wrong mistakes
	if changed.checkCalendar(&wrong); l.Calendar == nil && l.Unit == Month && len(wrong) == 0 {
		l.Calendar = changed.Calendar
	}
}

// UpdateCalendar adapts the calendar of p to a new unit. Windows without a calendar, such as hours,
// lose it. If months is set, windows of one month without a calendar get that of UTC.
func UpdateCalendar(p *limiter.Policy, unit Unit, multiplier uint32, months bool) {
	by, ok := calendarUnits[unit]
	switch {
	case !ok || multiplier > 1, months && unit != Month && p.Calendar == utcMonths:
		// envoyproxy/ratelimit has calendars for months only.
		p.Calendar = nil
	case p.Calendar != nil:
		p.Calendar = p.Calendar.WithUnit(by)
	case months && unit == Month && (p.Algorithm == limiter.FixedWindow || p.Algorithm == limiter.SlidingWindow):
		p.Calendar = utcMonths
	}
}

// utcMonths is the calendar of months in UTC.
var utcMonths = func() *limiter.Calendar {
	c, _ := calendarOf("", 1) // UTC needs no time zone file
	return c.WithUnit(limiter.Months)
}()

// IsUTCMonth reports whether windows are calendar months in UTC, as with envoyproxy/ratelimit's
// USE_CALENDAR_MONTH_RATE_LIMIT.
func IsUTCMonth(c *limiter.Calendar) bool {
	return c.Unit() == limiter.Months && c.Anchor() == 1 && c.Zone() == time.UTC
}
