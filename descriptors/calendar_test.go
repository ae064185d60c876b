package descriptors

import (
	"strings"
	"testing"
	_ "time/tzdata" // independent of the machine's time zones

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

const calendarRules = `
domain: d
descriptors:
  - {key: berlin, rate_limit: {unit: month, requests_per_unit: 5, calendar: true, timezone: Europe/Berlin, anchor_day: 15}}
  - {key: ring, rate_limit: {unit: day, requests_per_unit: 5, calendar: true, algorithm: sliding_window}}
  - {key: utc, rate_limit: {unit: month, requests_per_unit: 5, calendar: true}}
  - {key: plain, rate_limit: {unit: month, requests_per_unit: 5}}
  - {key: plainring, rate_limit: {unit: month, requests_per_unit: 5, algorithm: sliding_window}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: off, rate_limit: {unit: month, requests_per_unit: 5, calendar: false}}
  - {key: months, rate_limit: {unit: month, unit_multiplier: 2, requests_per_unit: 5}}
  - {key: bucket, rate_limit: {unit: month, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: free, rate_limit: {unlimited: true}}
`

// TestCalendarOverrides checks that an override uses the calendar of its rule if the override's
// unit has one, and that with CalendarMonths overrides in months use the calendar in UTC otherwise.
func TestCalendarOverrides(t *testing.T) {
	const hour, day, month, year = 3, 4, 5, 6
	for _, tc := range []struct {
		key              string
		unit             int32
		multiplier       uint32
		want, withMonths string
	}{
		{"berlin", month, 0, "@Europe/Berlin@15 month", "@Europe/Berlin@15 month"},
		{"berlin", month, 1, "@Europe/Berlin@15 month", "@Europe/Berlin@15 month"},
		{"berlin", month, 2, "", ""},
		{"berlin", day, 0, "@Europe/Berlin day", "@Europe/Berlin day"},
		{"berlin", year, 0, "@Europe/Berlin year", "@Europe/Berlin year"},
		{"berlin", hour, 0, "", ""},
		{"ring", month, 0, "@UTC.10 month", "@UTC.10 month"},
		{"plain", month, 0, "", "@UTC month"},
		{"plain", year, 0, "", ""},
		{"plainring", month, 0, "", "@UTC.10 month"},
		{"plain", month, 3, "", ""},
		{"day", month, 0, "", "@UTC month"},
		{"day", day, 0, "", ""},
		{"bucket", month, 0, "", ""},
		{"free", month, 0, "", "@UTC month"},
		{"unknown", month, 0, "", "@UTC month"},
	} {
		for _, months := range []bool{false, true} {
			want := tc.want
			if months {
				want = tc.withMonths
			}
			p := plan(load(t, Options{CalendarMonths: months}, calendarRules), Global{}, desc(tc.key, "").limit(9, tc.unit, tc.multiplier))
			if got := calendarText(p.Batch.Charges[0].Policy); got != want {
				t.Errorf("%s, %d of unit %d, months %t: calendar %q, want %q", tc.key, tc.multiplier, tc.unit, months, got, want)
			}
		}
	}
}

// calendarText returns a policy's calendar as in names of counters, and its unit.
func calendarText(p *limiter.Policy) string {
	if p.Calendar == nil {
		return ""
	}
	kind, _ := rules.AppendKind(nil, p)
	_, text, _ := strings.Cut(strings.TrimRight(string(kind), "_"), "@")
	return "@" + text + " " + [...]string{"day", "week", "month", "year"}[p.Calendar.Unit()]
}

// TestCalendarNames checks that counters with a calendar have exact names with zone and anchor day,
// except for months in UTC, which have envoyproxy/ratelimit's names with
// USE_CALENDAR_MONTH_RATE_LIMIT.
func TestCalendarNames(t *testing.T) {
	s := load(t, Options{RatelimitNames: true}, calendarRules)
	want := map[string]string{
		"berlin": "s1{...}f2592000@Europe/Berlin@15_<start>", "ring": "s1{...}r86400@UTC.10", "utc": "d_utc_<utc>_<start>",
		"plain": "d_plain_<plain>_<start>", "off": "d_off_<off>_<start>", "day": "d_day_<day>_<start>",
	}
	for _, l := range s.Limits {
		if text, ok := want[l.Rule.Path()]; ok && s.StoreName(l).Text != text {
			t.Errorf("%s: %q, want %q", l.Rule.Path(), s.StoreName(l).Text, text)
		}
	}
	s = load(t, Options{RatelimitNames: true, CalendarMonths: true}, calendarRules)
	n := NewRatelimitNamer("p:", nil)
	for _, tc := range []struct {
		key   string
		limit *Override
		want  string
	}{
		{"plain", nil, "p:d_plain_x_"},
		{"plain", &Override{RequestsPerUnit: 9, Unit: 5}, "p:d_plain_x_"},
		{"plain", &Override{RequestsPerUnit: 9, Unit: 6}, "f31536000_"},
		{"berlin", nil, "f2592000@Europe/Berlin@15_"},
		{"berlin", &Override{RequestsPerUnit: 9, Unit: 4}, "f86400@Europe/Berlin_"},
	} {
		names, _ := namesOf(s, n, "d", tc.key+"=x", tc.limit)
		if !strings.HasSuffix(names[0], tc.want) {
			t.Errorf("%s with the limit %v: %q, want it to end in %q", tc.key, tc.limit, names[0], tc.want)
		}
	}
}

// TestCalendarTexts checks the texts of calendars in messages and dumps.
func TestCalendarTexts(t *testing.T) {
	s := load(t, Options{}, calendarRules)
	if got, want := s.Limits[0].String(), "5/month, calendar: true, timezone: Europe/Berlin, anchor_day: 15"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := dump(s.Limits[0]), ", calendar: true, timezone: Europe/Berlin, anchor_day: 15\n"; !strings.HasSuffix(got, want) {
		t.Errorf("dump = %q, want it to end in %q", got, want)
	}
	other := load(t, Options{}, strings.Replace(calendarRules, "anchor_day: 15", "anchor_day: 16", 1))
	if s.Hash == other.Hash {
		t.Error("another anchor_day has the same hash")
	}
}
