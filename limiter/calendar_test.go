package limiter

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need no zones of the machine
)

// calendarOf returns a calendar of a zone.
func calendarOf(t testing.TB, zone string, anchor int, unit CalendarUnit) *Calendar {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return NewCalendar(location, anchor).By(unit)
}

// known is a line of the table that Python made.
type known struct {
	calendar *Calendar
	name     string
	starts   []int64
}

// knownWindows reads the table.
func knownWindows(t testing.TB) (all []known) {
	t.Helper()
	text, err := os.ReadFile("testdata/calendar/windows.tsv")
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
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

// Windows begin and end where another implementation of time zones says, for each instant around their edges, in
// any order of times.
func TestCalendarWindowsAreThoseOfAnother(t *testing.T) {
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
		n := len(k.starts) - 1
		for i := 1; i < n; i++ {
			start, end := k.starts[i], k.starts[i+1]
			check(start, start, end)
			check(start-1, k.starts[i-1], start) // the clock is set back over the edge
			check((start+end)/2, start, end)
			check(end-1, start, end)
			far := (i * 7919) % n // and over many
			check(k.starts[far], k.starts[far], k.starts[far+1])
		}
	}
}

// The numbers of windows follow each other, so that those of their parts do; a date that a zone leaves out
// has one, too.
func TestCalendarNumbers(t *testing.T) {
	for _, k := range knownWindows(t) {
		skipped := 0
		for i := 1; i < len(k.starts)-1; i++ {
			before, number := k.calendar.number(k.starts[i]-1), k.calendar.number(k.starts[i])
			skipped += int(number - before - 1)
			if at := k.calendar.start(number); at != k.starts[i] {
				t.Fatalf("%s: window %d begins at %d, want %d", k.name, number, at, k.starts[i])
			}
		}
		if want := map[bool]int{true: 1}[k.name == "Pacific/Apia day 1"]; skipped != want {
			t.Errorf("%s: %d windows are left out, want %d", k.name, skipped, want)
		}
	}
}

// What is remembered of a calendar changes no answer, and needs no memory while time goes on within it.
func TestCalendarAllocatesNothing(t *testing.T) {
	c := calendarOf(t, "Europe/Berlin", 31, Months)
	at := Time(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixNano())
	c.Window(at)
	if n := testing.AllocsPerRun(100, func() {
		c.Window(at)
		c.Window(at - Time(24*24*time.Hour)) // late, in the window before
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
