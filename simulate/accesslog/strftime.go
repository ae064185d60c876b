package accesslog

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// strftime reads times that Envoy wrote by a format of START_TIME, in UTC.
type strftime struct {
	format string
	epoch  bool
}

var errNotTheTime = errors.New("is no time of START_TIME's format")

// newStrftime reads a format such as %Y-%m-%dT%H:%M:%S.%3fZ or %s.%9f.
func newStrftime(format string) (*strftime, error) {
	for from, to := range map[string]string{"%T": "%H:%M:%S", "%F": "%Y-%m-%d", "%D": "%m/%d/%y", "%R": "%H:%M"} {
		format = strings.ReplaceAll(format, from, to)
	}
	f := &strftime{format: format, epoch: strings.Contains(format, "%s")}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		i++
		if i+1 < len(format) && '1' <= format[i] && format[i] <= '9' {
			i++
			if format[i] != 'f' {
				return nil, f.unknown(i)
			}
		}
		if i == len(format) || !strings.ContainsRune("YmdHMSsfezbyZ%", rune(format[i])) {
			return nil, f.unknown(i)
		}
	}
	day := strings.Contains(format, "%d") || strings.Contains(format, "%e")
	month := strings.Contains(format, "%m") || strings.Contains(format, "%b")
	year := strings.Contains(format, "%Y") || strings.Contains(format, "%y")
	clock := strings.Contains(format, "%H") && strings.Contains(format, "%M") && strings.Contains(format, "%S")
	if whole := day && month && year && clock; !whole && !f.epoch {
		return nil, fmt.Errorf("--format: START_TIME(%s) has no whole time: want %%s, or year to second", format)
	}
	return f, nil
}

func (f *strftime) unknown(at int) error {
	return fmt.Errorf("--format: START_TIME(%s): what follows %q is not known here: use %%s, %%Y, %%m, %%b, %%d, %%H, %%M, %%S, %%f, %%1f to %%9f, %%z, %%F or %%T",
		f.format, f.format[:min(at, len(f.format))])
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// parse reads a time.
func (f *strftime) parse(b []byte) (int64, error) {
	year, month, day := int64(1970), int64(1), int64(1)
	var hour, minute, second, nanos, zone int64
	at := 0
	number := func(most int) (n int64) {
		first := at
		for at < len(b) && at-first < most && b[at]-'0' <= 9 {
			n = n*10 + int64(b[at]-'0')
			at++
		}
		if at == first {
			at = len(b) + 1
		}
		return n
	}
	for i := 0; i < len(f.format) && at <= len(b); i++ {
		c := f.format[i]
		if c != '%' || f.format[i+1] == '%' {
			if at == len(b) || b[at] != c {
				return 0, errNotTheTime
			}
			if c == '%' {
				i++
			}
			at++
			continue
		}
		i++
		switch c = f.format[i]; c {
		case 'Y':
			year = number(4)
		case 'y':
			year = 2000 + number(2)
		case 'm':
			month = number(2)
		case 'b':
			month = 0
			if at+3 <= len(b) {
				if j := strings.Index(months, string(b[at:at+3])); j >= 0 && j%3 == 0 {
					month = int64(j/3) + 1
				}
			}
			at += 3
		case 'd', 'e':
			for at < len(b) && b[at] == ' ' {
				at++
			}
			day = number(2)
		case 'H':
			hour = number(2)
		case 'M':
			minute = number(2)
		case 'S':
			second = number(2)
		case 's':
			second = number(11)
		case 'z':
			zone, at = offset(b, at)
		case 'Z':
			for at < len(b) && 'A' <= b[at] && b[at] <= 'Z' {
				at++
			}
		default: // f, or a digit before it
			width := 9
			if c != 'f' {
				width = int(c - '0')
				i++
			}
			first := at
			nanos = number(width)
			for range 9 - (at - first) {
				nanos *= 10
			}
		}
	}
	if at != len(b) {
		return 0, errNotTheTime
	}
	if f.epoch {
		if second > 9_223_372_035 {
			return 0, errNotTheTime
		}
		return second*nanosPerSecond + nanos, nil
	}
	if year < 1970 || year > 2261 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 60 {
		return 0, errNotTheTime
	}
	return (((days(year, month, day)*24+hour)*60+minute)*60+second-zone)*nanosPerSecond + nanos, nil
}

// offset reads +0100 or +01:00 as seconds.
func offset(b []byte, at int) (seconds int64, next int) {
	for _, layout := range []string{"-07:00", "-0700"} {
		if at+len(layout) <= len(b) {
			if t, err := time.Parse(layout, string(b[at:at+len(layout)])); err == nil {
				_, s := t.Zone()
				return int64(s), at + len(layout)
			}
		}
	}
	return 0, len(b) + 1
}
