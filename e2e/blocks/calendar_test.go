package blocks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// zone is a time zone that never changes its offset from UTC.
type zone struct {
	name   string
	offset time.Duration
}

// zones are one for each hour of the day, and others.
var zones = func() (all []zone) {
	for h := -12; h <= 14; h++ {
		all = append(all, zone{fmt.Sprintf("Etc/GMT%+d", -h), time.Duration(h) * time.Hour})
	}
	return append(all,
		zone{"Asia/Kolkata", 5*time.Hour + 30*time.Minute},
		zone{"Asia/Kathmandu", 5*time.Hour + 45*time.Minute},
		zone{"Australia/Eucla", 8*time.Hour + 45*time.Minute},
		zone{"Pacific/Marquesas", -9*time.Hour - 30*time.Minute})
}()

// window returns the calendar window of a unit that contains t.
func (z zone) window(unit string, t time.Time) (start, end time.Time) {
	place := time.FixedZone(z.name, int(z.offset/time.Second))
	year, month, day := t.In(place).Date()
	date := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, place) }
	switch unit {
	case "year":
		return date(year, 1, 1), date(year+1, 1, 1)
	case "month":
		return date(year, month, 1), date(year, month+1, 1)
	case "week":
		day -= (int(t.In(place).Weekday()) + 6) % 7
		return date(year, month, day), date(year, month, day+7)
	}
	return date(year, month, day), date(year, month, day+1)
}

// partEnd returns when the first sub-window of a calendar window, or the window, ends after a time.
func (l limit) partEnd(after time.Time) time.Time {
	start, end := l.zone.window(l.unit, after)
	for k := 1; ; k++ {
		if at := start.Add(end.Sub(start) * time.Duration(k) / time.Duration(max(1, l.parts))); at.After(after) {
			return at
		}
	}
}

// ending returns sliding windows with a sub-window that ends between two times, up to n for each
// calendar unit.
func ending(n, hits int, from, to time.Time) (all []limit) {
	for _, unit := range []string{"day", "week", "month", "year"} {
		var found []limit
		for _, z := range zones {
			for parts := 1; parts <= 60; parts++ {
				if l := calendar(hits, unit, z, parts); l.partEnd(from).Before(to) {
					found = append(found, l)
				}
			}
		}
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		all = append(all, found[:min(n, len(found))]...)
	}
	return all
}

// calendarsAt returns limits of calendars, and a time after which a sub-window of each ends. With
// SLUICE_EFFORT=100 it waits for a full hour, when a day ends somewhere.
func calendarsAt(t *testing.T, hits int) (all []limit, at time.Time) {
	t.Helper()
	at = time.Now().Add(5 * time.Second)
	if !long(t) {
		for most := 4 * time.Second; len(all) == 0; most *= 2 {
			all = ending(3, hits, at, at.Add(most))
		}
		return all, at
	}
	hour := at.Truncate(time.Hour).Add(time.Hour)
	if deadline, ok := t.Deadline(); ok && deadline.Before(hour.Add(time.Minute)) {
		suite.Skip(t, fmt.Sprintf("no time until %v, when a day ends", hour))
	}
	at = hour.Add(-time.Second)
	for _, z := range zones {
		if l := calendar(hits, "day", z, 0); l.partEnd(at).Equal(hour) {
			all = append(all, l, l.with("count_refused: false"), calendar(hits, "day", z, 1), calendar(hits, "day", z, 7))
		}
	}
	wait(t.Context(), time.Until(at)-20*time.Second)
	return append(all, ending(2, hits, at, at.Add(2*time.Second))...), at
}

// TestCalendarWindows has blocks of calendar windows when a sub-window ends, and bursts before and
// after it. All sub-windows of the test count together, so a limit admits its hits once, and the store
// has counted each admitted one. With SLUICE_EFFORT=100 windows end too.
func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	limits, at := calendarsAt(t, 10_000)
	var all []mixClient
	for n, l := range limits {
		all = append(all, mixClient{name: fmt.Sprintf("calendar%d", n), descriptors: [][]limit{{l}}})
	}
	m := startPatientMix(t, all)
	which := m.some(len(all))
	m.awaitBlocks(t, which)
	together(which, func(which int) { m.crossPartEnd(t.Context(), which, limits[which].partEnd(at)) })
	for which, l := range limits {
		c := m.counters[which][0]
		admitted, _ := c.used()
		used := m.look(t, 0, c).Used
		t.Logf("%s: %d hits admitted, %d used", l.yaml(1), admitted, used)
		if l.parts > 0 && used < admitted {
			t.Errorf("%s: %d hits were admitted, but %d are used", l.yaml(1), admitted, used)
		}
	}
	m.verify(t, 1)
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// crossPartEnd has one replica use blocks until about the end of a sub-window, and then all use up
// the limit.
func (m *mix) crossPartEnd(ctx context.Context, which int, end time.Time) {
	first := rand.IntN(len(m.services))
	others := []int{(first + 1) % len(m.services), (first + 2) % len(m.services)}
	switch rand.IntN(4) {
	case 0:
		m.trickle(ctx, first, which, time.Until(end)-between(0, 100*time.Millisecond))
		m.burst(ctx, which, others...)
	case 1:
		m.trickle(ctx, first, which, time.Until(end)-between(0, 300*time.Millisecond))
		wait(ctx, time.Until(end)+between(0, 100*time.Millisecond))
		m.burst(ctx, which, first)
	default:
		m.trickle(ctx, first, which, time.Until(end)+between(0, 300*time.Millisecond))
		m.burst(ctx, which, others...)
	}
	m.burst(ctx, which, 0, 1, 2)
	wait(ctx, 400*time.Millisecond) // unused hits are returned
	m.burst(ctx, which, 0, 1, 2)
}
