package limiter

import (
	"slices"
	"sync"
	"time"
)

// A plainCalendar has the starts of all windows of a calendar from 1970 to 2199, in Unix seconds,
// computed by time.Date for zones in which every day has a midnight.
type plainCalendar struct{ starts []int64 }

var plainCalendars = struct {
	sync.Mutex
	of map[*Calendar]*plainCalendar
}{of: map[*Calendar]*plainCalendar{}}

func plain(c *Calendar) *plainCalendar {
	plainCalendars.Lock()
	defer plainCalendars.Unlock()
	if have := plainCalendars.of[c]; have != nil {
		return have
	}
	all := &plainCalendar{}
	for year := 1970; year < 2200; year++ {
		for month := time.January; month <= time.December; month++ {
			last := time.Date(year, month+1, 0, 0, 0, 0, 0, c.zone).Day()
			for day := 1; day <= last; day++ {
				date := time.Date(year, month, day, 0, 0, 0, 0, c.zone)
				if map[CalendarUnit]bool{
					Days: true, Weeks: date.Weekday() == time.Monday, Months: day == min(c.anchor, last), Years: date.YearDay() == 1,
				}[c.unit] {
					all.starts = append(all.starts, date.Unix())
				}
			}
		}
	}
	plainCalendars.of[c] = all
	return all
}

// window returns the index of the window that contains the second.
func (p *plainCalendar) window(second int64) int {
	i, found := slices.BinarySearch(p.starts, second)
	if !found {
		i--
	}
	return i
}

// part returns when a part begins, if each window has k parts.
func (p *plainCalendar) part(number, k int64) Time {
	i, j := number/k, number%k
	return Time((p.starts[i] + (p.starts[i+1]-p.starts[i])*j/k) * int64(time.Second))
}

// number returns the part that contains the time.
func (p *plainCalendar) number(at Time, k int64) int64 {
	number := int64(p.window(quotient(int64(at), int64(time.Second)))) * k
	for p.part(number+1, k) <= at {
		number++
	}
	return number
}

// calendarPolicies use calendars in which every day has a midnight.
var calendarPolicies = sync.OnceValue(func() [][]Policy {
	calendar := func(zone string, anchor int, unit CalendarUnit) *Calendar {
		location, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		return NewCalendar(location, anchor).WithUnit(unit)
	}
	month, day := calendar("Europe/Berlin", 31, Months), calendar("America/New_York", 1, Days)
	week, year := calendar("Europe/London", 1, Weeks), calendar("Asia/Kathmandu", 1, Years)
	return [][]Policy{
		{
			{Algorithm: FixedWindow, Limit: 3, Window: 30 * 24 * time.Hour, Calendar: month},
			{Algorithm: FixedWindow, Limit: 5, Window: 30 * 24 * time.Hour, Calendar: month, CountRefused: true},
		},
		{{Algorithm: FixedWindow, Limit: 9, Window: 24 * time.Hour, Calendar: day}},
		{
			{Algorithm: SlidingWindow, Limit: 3, Window: 30 * 24 * time.Hour, SubWindows: 10, Calendar: month},
			{Algorithm: SlidingWindow, Limit: 9, Window: 30 * 24 * time.Hour, SubWindows: 10, Calendar: month, CountRefused: true},
		},
		{{Algorithm: SlidingWindow, Limit: 4, Window: 24 * time.Hour, SubWindows: 7, Calendar: day}},
		{{Algorithm: SlidingWindow, Limit: 4, Window: 7 * 24 * time.Hour, SubWindows: 1, Calendar: week}},
		{{Algorithm: SlidingWindow, Limit: 4, Window: 365 * 24 * time.Hour, SubWindows: 60, Calendar: year}},
	}
})
