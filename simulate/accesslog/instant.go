package accesslog

import (
	"errors"
	"strconv"
	"time"
)

var errNoTime = errors.New("is no time: want 2026-11-22T09:00:00.123Z or seconds since 1970")

// nanosPerSecond is also what a fraction of nine digits counts.
const nanosPerSecond = 1_000_000_000

// parseInstant reads a time as logs have it: RFC 3339 with any fraction, or a number since
// 1970 in seconds, or, by its size, in milliseconds, microseconds or nanoseconds. It
// returns nanoseconds since 1970.
func parseInstant(b []byte) (int64, error) {
	if len(b) >= 20 && b[4] == '-' && b[10] == 'T' && b[len(b)-1] == 'Z' {
		if t, ok := parseUTC(b); ok {
			return t, nil
		}
	}
	if t, ok := parseEpoch(b); ok {
		return t, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07:00"} {
		if t, err := time.Parse(layout, string(b)); err == nil && inRange(t) {
			return t.UnixNano(), nil
		}
	}
	return 0, errNoTime
}

// inRange reports whether nanoseconds can say t.
func inRange(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2262 }

// parseUTC reads 2026-11-22T09:00:00.123Z.
func parseUTC(b []byte) (int64, bool) {
	two := func(i int) int64 {
		if b[i]-'0' > 9 || b[i+1]-'0' > 9 {
			return -1 << 32
		}
		return int64(b[i]-'0')*10 + int64(b[i+1]-'0')
	}
	year, month, day := two(0)*100+two(2), two(5), two(8)
	hour, minute, second := two(11), two(14), two(17)
	if b[7] != '-' || b[13] != ':' || b[16] != ':' ||
		year < 1970 || year > 2261 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return 0, false
	}
	var nanos int64
	if rest := b[19 : len(b)-1]; len(rest) > 0 {
		var ok bool
		if nanos, ok = fraction(rest); !ok {
			return 0, false
		}
	}
	return (((days(year, month, day)*24+hour)*60+minute)*60+second)*nanosPerSecond + nanos, true
}

// fraction reads .123 as nanoseconds; of more than nine digits it drops the rest.
func fraction(b []byte) (nanos int64, ok bool) {
	if len(b) < 2 || b[0] != '.' {
		return 0, false
	}
	scale := int64(nanosPerSecond / 10)
	for _, c := range b[1:] {
		if c -= '0'; c > 9 {
			return 0, false
		}
		nanos += int64(c) * scale
		scale /= 10
	}
	return nanos, true
}

// days returns the days from 1970 to a date of the Gregorian calendar (Hinnant,
// "chrono-compatible low-level date algorithms").
func days(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	ofEra := year - era*400
	ofYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719468
}

func daysIn(year, month int64) int64 {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	default:
		return 31
	}
}

// parseEpoch reads 1763800000, 1763800000.123 and 1763800000123. No time between 1973 and
// 5138 can be mistaken: seconds of it have at most 11 digits, milliseconds 12 to 14.
func parseEpoch(b []byte) (int64, bool) {
	whole := b
	nanos := int64(0)
	for i, c := range b {
		if c == '.' {
			var ok bool
			if nanos, ok = fraction(b[i:]); !ok {
				return 0, false
			}
			whole = b[:i]
			break
		}
	}
	n, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	switch {
	case n < 1e11:
		if n > 9_223_372_035 { // 2262
			return 0, false
		}
		return n*nanosPerSecond + nanos, true
	case n < 1e14:
		if n > 9_223_372_035_000 {
			return 0, false
		}
		return n*1_000_000 + nanos/1000, true
	case n < 1e17:
		if n > 9_223_372_035_000_000 {
			return 0, false
		}
		return n*1000 + nanos/1_000_000, true
	default:
		return n, true
	}
}
