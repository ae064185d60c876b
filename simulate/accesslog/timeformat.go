package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// timeFormat says how times are written.
type timeFormat struct {
	// layouts are of package time. They have no fraction of a second, which is cut out of a
	// time before it is read.
	layouts []string
	// numeric says that a time may be a number, between before and after.
	numeric        bool
	prefix, suffix string
	// from is where the fraction begins, and digits how many it has. If they are negative,
	// it stands behind a point, and has any.
	fractionAt, fractionDigits int
	err                        error
}

// anyTimeFormat reads times as logs have them: RFC 3339 with any fraction, as Apache, HAProxy and the
// W3C's format write them, or a number since 1970 in seconds, or, by its size, in milliseconds,
// microseconds or nanoseconds. A time without a zone is one of UTC.
var anyTimeFormat = &timeFormat{
	layouts: []string{
		time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00",
		"02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05", "2006-01-02\t15:04:05", "2006-01-02 15:04:05", "2006/01/02 15:04:05",
		"2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST", // as Ruby and BigQuery write them
		"1/2/06, 15:04:05", "1/2/2006, 15:04:05",
	},
	numeric:        true,
	fractionDigits: -1,
	err:            errors.New("is no time: want 2026-11-22T09:00:00.123Z or seconds since 1970"),
}

// parsedSecond is the time of a line without its fraction. The next line often has the same, and
// reading it again would take most of the time of reading a line.
type parsedSecond struct {
	// before and after are what stands around the digits of the fraction, of which there were
	// none if it is not fractional.
	prefix, suffix []byte
	fractional     bool
	// at is nanoseconds since 1970, and unit how many of them a fraction is of.
	at, unit int64
}

// parse reads a time as nanoseconds since 1970. Last is the reader's own.
func (c *timeFormat) parse(b []byte, last *parsedSecond) (int64, error) {
	if nanos, ok := c.parseFraction(b, last); ok {
		return last.at + nanos, nil
	}
	from, digits, to := c.findFraction(b)
	if from < 0 {
		return 0, c.err
	}
	at, unit, err := c.parseSeconds(string(b[:from]) + string(b[to:]))
	if err != nil {
		return 0, err
	}
	last.prefix, last.suffix = append(last.prefix[:0], b[:digits]...), append(last.suffix[:0], b[to:]...)
	last.fractional, last.at, last.unit = digits < to, at, unit
	nanos, ok := c.parseFraction(b, last)
	if !ok {
		return 0, c.err
	}
	return at + nanos, nil
}

// parseFraction reads the fraction of a time; ok is false if the rest is not as in the last one.
func (c *timeFormat) parseFraction(b []byte, last *parsedSecond) (parseFraction int64, ok bool) {
	if len(last.prefix) == 0 && len(last.suffix) == 0 || !bytes.HasPrefix(b, last.prefix) {
		return 0, false
	}
	b = b[len(last.prefix):]
	i := 0
	if last.fractional {
		for scale := last.unit; i < len(b) && b[i]-'0' <= 9 && (c.fractionDigits < 0 || i < c.fractionDigits); i++ {
			scale /= 10
			parseFraction += int64(b[i]-'0') * scale
		}
	}
	return parseFraction, (i > 0) == last.fractional && (c.fractionDigits < 0 || i == c.fractionDigits) && bytes.Equal(b[i:], last.suffix)
}

// findFraction finds the fraction of a time, which ends before to; its digits may begin behind a
// point. From is negative if there is no place for one.
func (c *timeFormat) findFraction(b []byte) (from, digits, to int) {
	if c.fractionDigits >= 0 {
		if to = c.fractionAt + c.fractionDigits; to > len(b) {
			return -1, 0, 0
		}
		return c.fractionAt, c.fractionAt, to
	}
	if from = bytes.IndexByte(b, '.'); from < 0 {
		return len(b), len(b), len(b)
	}
	for to = from + 1; to < len(b) && b[to]-'0' <= 9; to++ {
	}
	if to == from+1 || to < len(b) && from != len("2006-01-02T15:04:05") && from != len("02/Jan/2006:15:04:05") {
		return -1, 0, 0
	}
	return from, from + 1, to
}

// parseSeconds reads a time without a fraction.
func (c *timeFormat) parseSeconds(text string) (at, unit int64, err error) {
	if number, ok := c.timestamp(text); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		// No time between 1973 and 5138 can be mistaken: seconds of it have at most 11
		// digits, milliseconds 12 to 14.
		switch {
		case n < 1e11:
			unit = 1e9
		case n < 1e14:
			unit = 1e6
		case n < 1e17:
			unit = 1e3
		default:
			unit = 1
		}
		if err != nil || n >= math.MaxInt64/unit {
			return 0, 0, errRange
		}
		return n * unit, unit, nil
	}
	err = c.err
	for _, layout := range c.layouts {
		t, bad := time.ParseInLocation(layout, text, time.UTC) // so that the zone of this machine changes nothing
		if bad != nil || strings.Contains(layout, zoneName) && !isUTC(t) {
			continue
		}
		if t.Unix() >= 0 && t.Unix() < math.MaxInt64/int64(time.Second) {
			return t.UnixNano(), 1e9, nil
		}
		err = errRange
	}
	return 0, 0, err
}

var errRange = errors.New("is before 1970 or after 2261")

// zoneName is how layouts write the abbreviation of a time zone, strftime's %Z.
const zoneName = "MST"

// isUTC reports whether the abbreviation of a time's zone is one of UTC. Others are ambiguous: CST
// is used in America and in China.
func isUTC(t time.Time) bool {
	name, offset := t.Zone()
	return offset == 0 && (name == "UTC" || name == "GMT")
}

// timestamp returns the digits of a time that is a number; ok is false of any other.
func (c *timeFormat) timestamp(text string) (timestamp string, ok bool) {
	text, begins := strings.CutPrefix(text, c.prefix)
	text, ends := strings.CutSuffix(text, c.suffix)
	return text, c.numeric && begins && ends && text != "" && strings.Trim(text, "0123456789") == ""
}

// strftimeLayouts are those of strftime and what layouts of package time call them.
var strftimeLayouts = map[string]string{
	"Y": "2006", "y": "06", "m": "01", "b": "Jan", "d": "02", "e": "_2", "H": "15", "M": "04", "S": "05",
	"z": "-0700", "Z": zoneName, "T": "15:04:05", "F": "2006-01-02", "D": "01/02/06", "R": "15:04", "%": "%",
}

// newTimeFormat reads a format of START_TIME, such as %Y-%m-%dT%H:%M:%S.%3fZ or %s.%9f, whose
// conversions have the width that Envoy writes.
func newTimeFormat(format string) (*timeFormat, error) {
	c := &timeFormat{err: errors.New("is no time of START_TIME's format")}
	// example is a time of the format, whose layout is c.after.
	at, example, calendar := time.Date(2021, 12, 23, 21, 56, 57, 0, time.UTC), "", false
	rest := format
	for {
		literal, next, found := strings.Cut(rest, "%")
		example += literal
		c.suffix += literal
		if !found {
			break
		}
		conversion := next[:min(len(next), 1)]
		if conversion != "" && '1' <= conversion[0] && conversion[0] <= '9' {
			conversion = next[:min(len(next), 2)]
		}
		rest = next[len(conversion):]
		switch layout, known := strftimeLayouts[conversion]; {
		case known:
			calendar = calendar || conversion != "%"
			c.suffix += layout
			example += at.Format(layout)
		case conversion == "s" && !c.numeric:
			c.numeric, c.prefix, c.suffix = true, example, ""
			example += "1700000000" // of as many digits as any
		case strings.HasSuffix(conversion, "f") && c.fractionDigits == 0:
			if c.fractionDigits = 9; conversion != "f" {
				c.fractionDigits = int(conversion[0] - '0')
			}
			c.fractionAt = len(example)
		default:
			return nil, fmt.Errorf("--format: START_TIME(%s): what follows %q is not known here: use %%s, %%Y, %%m, %%b, %%d, %%H, %%M, %%S, %%f, %%1f to %%9f, %%z, %%F or %%T",
				format, format[:len(format)-len(next)])
		}
	}
	if c.numeric && !calendar {
		return c, nil
	}
	c.layouts, c.suffix = []string{c.suffix}, ""
	if strings.Contains(c.layouts[0], zoneName) {
		c.err = errors.New("is no time of START_TIME's format in UTC: the name of another zone does not tell its offset: use %z in place of %Z")
	}
	if t, err := time.Parse(c.layouts[0], example); err != nil || !t.Equal(at) {
		return nil, fmt.Errorf("--format: START_TIME(%s) has no whole time, or has text that reads as a part of one: want %%s, or year to second", format)
	}
	return c, nil
}
