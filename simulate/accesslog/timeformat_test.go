package accesslog

import (
	"errors"
	"testing"
	"time"
)

func FuzzInstant(f *testing.F) {
	for _, s := range []string{"2026-11-21T09:00:00.123Z", "2026-11-21T09:00:00+01:00", "1763715600", "1763715600.5", "1763715600123", "9223372036854775807", "2262-01-01T00:00:00Z"} {
		f.Add([]byte(s))
	}
	own, err := newTimeFormat("%d/%b/%Y:%H:%M:%S.%f %z")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range []*timeFormat{anyTimeFormat, own} {
			at, err := c.parse(b, &parsedSecond{})
			if err == nil && at < 0 {
				t.Errorf("read(%q) = %d", b, at)
			}
			// The cached time does not change the result.
			var last parsedSecond
			for _, before := range []string{"2026-11-21T09:00:00.123Z", "21/Nov/2026:09:00:00.123456789 +0000", string(b)} {
				_, _ = c.parse([]byte(before), &last)
				if again, errAgain := c.parse(b, &last); again != at || (err == nil) != (errAgain == nil) {
					t.Errorf("read(%q) = %d, %v after %q, want %d, %v", b, again, errAgain, before, at, err)
				}
			}
		}
	})
}

// TestLocalTimeZoneIsIgnored reads the same time on machines in several zones.
func TestLocalTimeZoneIsIgnored(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York"} {
		var err error
		if time.Local, err = time.LoadLocation(zone); err != nil {
			t.Fatal(err)
		}
		c, err := newTimeFormat("%F %T %Z")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.parse([]byte("2026-11-21 09:00:00 UTC"), &parsedSecond{}); err != nil || got != 1795251600e9 {
			t.Errorf("in %s: %d, %v", zone, got, err)
		}
		for _, other := range []string{"EST", "CET", "PDT"} {
			if got, err := c.parse([]byte("2026-11-21 09:00:00 "+other), &parsedSecond{}); err == nil {
				t.Errorf("in %s: %s is read as %d, want an error", zone, other, got)
			}
		}
	}
}

// TestTimeFormats reads times with and without formats of START_TIME.
func TestTimeFormats(t *testing.T) {
	const second = 1795251600 // 2026-11-21T09:00:00Z
	for _, test := range []struct {
		format, text string
		want         int64 // nanoseconds; -1 if the text does not match
	}{
		{"", "2026-11-21T09:00:00Z", second * 1e9},
		{"", "2026-11-21T09:00:00.5Z", second*1e9 + 5e8},
		{"", "2026-11-21T09:00:00.1234567891Z", second*1e9 + 123456789},
		{"", "2026-11-21T10:00:00.5+01:00", second*1e9 + 5e8},
		{"", "2026-11-21T10:00:00+0100", second * 1e9},
		{"", "2026-11-21 09:00:00.25Z", second*1e9 + 25e7},
		{"", "21/Nov/2026:10:00:00.25 +0100", second*1e9 + 25e7},
		{"", "1795251600", second * 1e9},
		{"", "1795251600.123", second*1e9 + 123e6},
		{"", "1795251600123", second*1e9 + 123e6},
		{"", "1795251600123.5", second*1e9 + 1235e5},
		{"", "1795251600123456", second*1e9 + 123456e3},
		{"", "1795251600123456789", second*1e9 + 123456789},
		{"", "2026-11-21T09:00:00.Z", -1},
		{"", "2026-11-21.5T09:00:00Z", -1},
		{"", "2026-02-29T09:00:00Z", -1},
		{"", "2262-11-21T09:00:00Z", -1},
		{"", "1969-11-21T09:00:00Z", -1},
		{"", "1970-01-01T00:30:00+01:00", -1},
		{"", "-1", -1},
		{"", ".5", -1},
		{"", "", -1},
		{"%s", "1795251600", second * 1e9},
		{"%s.%3f", "1795251600.123", second*1e9 + 123e6},
		{"%s%3f", "1795251600123", second*1e9 + 123e6},
		{"[%s %f]", "[1795251600 123456789]", second*1e9 + 123456789},
		{"[%s]", "1795251600", -1},
		{"%s.%3f", "1795251600.12", -1},
		{"%Y-%m-%dT%H:%M:%S.%3fZ", "2026-11-21T09:00:00.123Z", second*1e9 + 123e6},
		{"%FT%T.%fZ", "2026-11-21T09:00:00.123456789Z", second*1e9 + 123456789},
		{"%Y%m%d%H%M%S%3f", "20261121090000123", second*1e9 + 123e6},
		{"%3f|%Y/%m/%d %R:%S", "123|2026/11/21 09:00:00", second*1e9 + 123e6},
		{"%d/%b/%Y:%H:%M:%S %z", "21/Nov/2026:10:00:00 +0100", second * 1e9},
		{"%D %T %Z", "11/21/26 09:00:00 UTC", second * 1e9},
		{"%D %T %Z", "11/21/26 09:00:00 GMT", second * 1e9},
		{"%D %T %Z", "11/21/26 09:00:00 EST", -1},
		{"%D %T %Z", "11/21/26 09:00:00 CET", -1},
		{"%e %b %Y %T %%", " 1 Nov 2026 09:00:00 %", (second - 20*86400) * 1e9},
		{"%b %e %T %Y", "Nov 21 09:00:00 2026", second * 1e9},
		{"%FT%TZ", "2026-11-31T09:00:00Z", -1},
		{"%FT%TZ", "2026-11-21T09:00:00", -1},
		{"%FT%TZ", "20261121", -1},
	} {
		c := anyTimeFormat
		if test.format != "" {
			var err error
			if c, err = newTimeFormat(test.format); err != nil {
				t.Errorf("newTimeFormat(%q) = %v", test.format, err)
				continue
			}
		}
		got, err := c.parse([]byte(test.text), &parsedSecond{})
		if err != nil {
			got = -1
		}
		if got != test.want {
			t.Errorf("%q by %q is %d (%v), want %d", test.text, test.format, got, err, test.want)
		}
	}
	for _, format := range []string{"", "%H:%M", "%Q", "%", "%3", "%3Y", "%s %s", "%s %H", "%3f %s.%3f", "%F %T 2006"} {
		if _, err := newTimeFormat(format); err == nil {
			t.Errorf("newTimeFormat(%q) = nil, want an error", format)
		}
	}
}

// TestTimesOutOfRange checks the error for times before 1970 and after 2261.
func TestTimesOutOfRange(t *testing.T) {
	for _, text := range []string{"31/Dec/1969:23:59:59 +0000", "10/Apr/9999:03:49:35 +0000", "99999999999"} {
		if _, err := anyTimeFormat.parse([]byte(text), &parsedSecond{}); !errors.Is(err, errRange) {
			t.Errorf("%s: %v, want %v", text, err, errRange)
		}
	}
}
