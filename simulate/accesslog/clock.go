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

// clock says how times are written.
type clock struct {
	// layouts are of package time. They have no fraction of a second, which is cut out of a
	// time before it is read.
	layouts []string
	// isNumber says that a time may be a number, between before and after.
	isNumber      bool
	before, after string
	// from is where the fraction begins, and digits how many it has. If they are negative,
	// it stands behind a point, and has any.
	from, digits int
	err          error
}

// anyClock reads times as logs have them: RFC 3339 with any fraction, as Apache, HAProxy and the
// W3C's format write them, or a number since 1970 in seconds, or, by its size, in milliseconds,
// microseconds or nanoseconds. A time without a zone is one of UTC.
var anyClock = &clock{
	layouts: []string{
		time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00",
		"02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05", "2006-01-02\t15:04:05", "2006-01-02 15:04:05", "2006/01/02 15:04:05",
		"2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST", // as Ruby and BigQuery write them
		"1/2/06, 15:04:05", "1/2/2006, 15:04:05",
	},
	isNumber: true,
	digits:   -1,
	err:      errors.New("is no time: want 2026-11-22T09:00:00.123Z or seconds since 1970"),
}

// second is the time of a line without its fraction. The next line often has the same, and
// reading it again would take most of the time of reading a line.
type second struct {
	// before and after are what stands around the digits of the fraction, of which there were
	// none if it is not fractional.
	before, after []byte
	fractional    bool
	// at is nanoseconds since 1970, and unit how many of them a fraction is of.
	at, unit int64
}

// read reads a time as nanoseconds since 1970. Last is the reader's own.
func (c *clock) read(b []byte, last *second) (int64, error) {
	if nanos, ok := c.nanos(b, last); ok {
		return last.at + nanos, nil
	}
	from, digits, to := c.cut(b)
	if from < 0 {
		return 0, c.err
	}
	at, unit, err := c.parse(string(b[:from]) + string(b[to:]))
	if err != nil {
		return 0, err
	}
	last.before, last.after = append(last.before[:0], b[:digits]...), append(last.after[:0], b[to:]...)
	last.fractional, last.at, last.unit = digits < to, at, unit
	nanos, ok := c.nanos(b, last)
	if !ok {
		return 0, c.err
	}
	return at + nanos, nil
}

// nanos reads the fraction of a time; ok is false if the rest is not as in the last one.
func (c *clock) nanos(b []byte, last *second) (nanos int64, ok bool) {
	if len(last.before) == 0 && len(last.after) == 0 || !bytes.HasPrefix(b, last.before) {
		return 0, false
	}
	b = b[len(last.before):]
	i := 0
	if last.fractional {
		for scale := last.unit; i < len(b) && b[i]-'0' <= 9 && (c.digits < 0 || i < c.digits); i++ {
			scale /= 10
			nanos += int64(b[i]-'0') * scale
		}
	}
	return nanos, (i > 0) == last.fractional && (c.digits < 0 || i == c.digits) && bytes.Equal(b[i:], last.after)
}

// cut finds the fraction of a time, which ends before to; its digits may begin behind a
// point. From is negative if there is no place for one.
func (c *clock) cut(b []byte) (from, digits, to int) {
	if c.digits >= 0 {
		if to = c.from + c.digits; to > len(b) {
			return -1, 0, 0
		}
		return c.from, c.from, to
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

// parse reads a time without a fraction.
func (c *clock) parse(text string) (at, unit int64, err error) {
	if number, ok := c.number(text); ok {
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
		if bad != nil || strings.Contains(layout, zoneName) && !namesUTC(t) {
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

// namesUTC reports whether the abbreviation of a time's zone is one of UTC. Others are ambiguous: CST
// is used in America and in China.
func namesUTC(t time.Time) bool {
	name, offset := t.Zone()
	return offset == 0 && (name == "UTC" || name == "GMT")
}

// number returns the digits of a time that is a number; ok is false of any other.
func (c *clock) number(text string) (number string, ok bool) {
	text, begins := strings.CutPrefix(text, c.before)
	text, ends := strings.CutSuffix(text, c.after)
	return text, c.isNumber && begins && ends && text != "" && strings.Trim(text, "0123456789") == ""
}

// conversions are those of strftime and what layouts of package time call them.
var conversions = map[string]string{
	"Y": "2006", "y": "06", "m": "01", "b": "Jan", "d": "02", "e": "_2", "H": "15", "M": "04", "S": "05",
	"z": "-0700", "Z": zoneName, "T": "15:04:05", "F": "2006-01-02", "D": "01/02/06", "R": "15:04", "%": "%",
}

// newClock reads a format of START_TIME, such as %Y-%m-%dT%H:%M:%S.%3fZ or %s.%9f, whose
// conversions have the width that Envoy writes.
func newClock(format string) (*clock, error) {
	c := &clock{err: errors.New("is no time of START_TIME's format")}
	// example is a time of the format, whose layout is c.after.
	at, example, calendar := time.Date(2021, 12, 23, 21, 56, 57, 0, time.UTC), "", false
	rest := format
	for {
		literal, next, found := strings.Cut(rest, "%")
		example += literal
		c.after += literal
		if !found {
			break
		}
		conversion := next[:min(len(next), 1)]
		if conversion != "" && '1' <= conversion[0] && conversion[0] <= '9' {
			conversion = next[:min(len(next), 2)]
		}
		rest = next[len(conversion):]
		switch layout, known := conversions[conversion]; {
		case known:
			calendar = calendar || conversion != "%"
			c.after += layout
			example += at.Format(layout)
		case conversion == "s" && !c.isNumber:
			c.isNumber, c.before, c.after = true, example, ""
			example += "1700000000" // of as many digits as any
		case strings.HasSuffix(conversion, "f") && c.digits == 0:
			if c.digits = 9; conversion != "f" {
				c.digits = int(conversion[0] - '0')
			}
			c.from = len(example)
		default:
			return nil, fmt.Errorf("--format: START_TIME(%s): what follows %q is not known here: use %%s, %%Y, %%m, %%b, %%d, %%H, %%M, %%S, %%f, %%1f to %%9f, %%z, %%F or %%T",
				format, format[:len(format)-len(next)])
		}
	}
	if c.isNumber && !calendar {
		return c, nil
	}
	c.layouts, c.after = []string{c.after}, ""
	if strings.Contains(c.layouts[0], zoneName) {
		c.err = errors.New("is no time of START_TIME's format in UTC: the name of another zone does not tell its offset: use %z in place of %Z")
	}
	if t, err := time.Parse(c.layouts[0], example); err != nil || !t.Equal(at) {
		return nil, fmt.Errorf("--format: START_TIME(%s) has no whole time, or has text that reads as a part of one: want %%s, or year to second", format)
	}
	return c, nil
}
