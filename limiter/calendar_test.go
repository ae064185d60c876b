package limiter

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // do not depend on the time zones of the machine

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// calendarOf returns a calendar with the given zone, anchor and unit.
func calendarOf(t *testing.T, zone string, anchor int, unit CalendarUnit) *Calendar {
	t.Helper()
	location, err := time.LoadLocation(zone)
	must.OK(t, err)
	return NewCalendar(location, anchor).WithUnit(unit)
}

// known is a line of the table that Python generated.
type known struct {
	calendar *Calendar
	name     string
	starts   []int64
}

func knownWindows(t *testing.T) (all []known) {
	t.Helper()
	text, err := os.ReadFile("testdata/calendar/windows.tsv")
	must.OK(t, err)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		must.OK(t, err)
		return n
	}
	units := map[string]CalendarUnit{"day": Days, "week": Weeks, "month": Months, "year": Years}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		k := known{calendar: calendarOf(t, f[0], int(number(f[2])), units[f[1]]), name: strings.Join(f[:3], " "), starts: []int64{number(f[3])}}
		for run := range strings.FieldsSeq(f[4]) {
			many, length, ok := strings.Cut(run, "x")
			if !ok {
				many, length = "1", run
			}
			for range number(many) {
				k.starts = append(k.starts, k.starts[len(k.starts)-1]+number(length))
			}
		}
		all = append(all, k)
	}
	if len(all) < 100 {
		t.Fatalf("%d lines, want more than 100", len(all))
	}
	return all
}

// TestCalendarWindowsEqualThoseOfPython compares windows with another implementation of time zones,
// around their boundaries and in any order of times.
func TestCalendarWindowsEqualThoseOfPython(t *testing.T) {
	for _, k := range knownWindows(t) {
		check := func(at, start, end int64) {
			t.Helper()
			for _, at := range []Time{Time(at * int64(time.Second)), Time(at*int64(time.Second) + int64(time.Second) - 1)} {
				s, e := k.calendar.Window(at)
				if s != Time(start*int64(time.Second)) || e != Time(end*int64(time.Second)) {
					t.Fatalf("%s at %v: window from %v to %v, want from %d to %d", k.name, at, s, e, start, end)
				}
			}
		}
		n, step := len(k.starts)-1, 1
		if effort.Level(t) < effort.More {
			step = 11
		}
		for i := 1; i < n; i += step {
			start, end := k.starts[i], k.starts[i+1]
			check(start, start, end)
			check(start-1, k.starts[i-1], start) // the clock is set back across the boundary
			check((start+end)/2, start, end)
			check(end-1, start, end)
			far := (i * 7919) % n // across many boundaries
			check(k.starts[far], k.starts[far], k.starts[far+1])
		}
	}
}

// TestCalendarNumbers checks that window numbers are consecutive, including dates that a zone
// skips.
func TestCalendarNumbers(t *testing.T) {
	for _, k := range knownWindows(t) {
		skipped := 0
		for i := 1; i < len(k.starts)-1; i++ {
			before, number := k.calendar.windowNumber(k.starts[i]-1), k.calendar.windowNumber(k.starts[i])
			skipped += int(number - before - 1)
			if at := k.calendar.windowStart(number); at != k.starts[i] {
				t.Fatalf("%s: window %d begins at %d, want %d", k.name, number, at, k.starts[i])
			}
		}
		if want := map[bool]int{true: 1}[k.name == "Pacific/Apia day 1"]; skipped != want {
			t.Errorf("%s: %d windows are skipped, want %d", k.name, skipped, want)
		}
	}
}

// TestCalendarAllocatesNothing checks that the cache of a calendar changes no result and does not
// allocate within a window.
func TestCalendarAllocatesNothing(t *testing.T) {
	c := calendarOf(t, "Europe/Berlin", 31, Months)
	at := Time(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixNano())
	c.Window(at)
	if n := must.AllocsPerRun(100, func() {
		c.Window(at)
		c.Window(at - Time(24*24*time.Hour)) // a late call in the previous window
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestCalendarEndsLeapYears checks the last day of leap years that no zone table lists, for which
// time.Time.ZoneBounds returns no end.
func TestCalendarEndsLeapYears(t *testing.T) {
	for _, zone := range []string{"Europe/London", "Europe/Berlin", "America/New_York", "America/Santiago", "Pacific/Auckland"} {
		c := calendarOf(t, zone, 31, Days)
		for year := 2036; year <= 2096; year += 4 {
			for hour := range 72 {
				at := time.Date(year, 12, 30, hour, 0, 0, 0, c.zone)
				want := time.Date(year, 12, 30+hour/24, 0, 0, 0, 0, c.zone)
				for _, unit := range []CalendarUnit{Days, Months} {
					if start, _ := c.WithUnit(unit).Window(Time(at.UnixNano())); unit == Days && start != Time(want.UnixNano()) {
						t.Fatalf("%v: the day began at %v, want %v", at, time.Unix(0, int64(start)).In(c.zone), want)
					}
				}
			}
		}
	}
}

// TestCalendarRingsKeepTheirBound checks that a sliding window with a calendar admits at most its
// limit in each of its windows, and in every interval that is no longer than either of the two
// windows it overlaps. A client that sends many hits gets at least a third of its limit, even with
// a single part.
func TestCalendarRingsKeepTheirBound(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	zones := []string{"Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll"}
	if effort.Level(t) < effort.More {
		zones = zones[1:2]
	}
	for _, zone := range zones {
		for unit := range CalendarUnit(calendarUnits) {
			for _, k := range []uint32{1, 2, 7, 10, 60} {
				const limit = 5
				c := calendarOf(t, zone, 31, unit)
				p := &Policy{Algorithm: SlidingWindow, Limit: limit, Window: 24 * time.Hour, SubWindows: k, Calendar: c}
				p.Prepare()
				tab, admitted := newTable(t, MinBytes), []Time{}
				at := Time(time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
				first := c.windowNumber(at.seconds())
				for n := 0; n < 4000 && at < 4_000_000_000*sec; n++ {
					start, end := c.Window(at)
					if at += Time(r.Int64N(int64(end-start) / 20)); r.IntN(4) == 0 { // and around boundaries
						_, at = c.Window(at)
						at += Time(r.Int64N(3) - 1)
					}
					if !decide(tab, at, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0].Over {
						admitted = append(admitted, at)
					}
				}
				for i, from := range admitted {
					start, end := c.Window(from)
					_, next := c.Window(end)
					hits := 0
					for _, hit := range admitted[i:] {
						if hit < from+min(end-start, next-end) {
							hits++
						}
					}
					if hits > limit {
						t.Fatalf("%s, unit %d, %d parts: %d hits from %v on, want at most %d", zone, unit, k, hits, time.Unix(0, int64(from)).In(c.zone), limit)
					}
				}
				windows := int(c.windowNumber(at.seconds()) - first)
				if least := windows * limit / 3; len(admitted) < least {
					t.Errorf("%s, unit %d, %d parts: %d hits in %d windows, want at least %d", zone, unit, k, len(admitted), windows, least)
				}
			}
		}
	}
}
