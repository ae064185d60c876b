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

// timeFormat describes how times are written.
type timeFormat struct {
	// layouts are those of package time, without the fraction of a second, which is removed before
	// parsing.
	layouts []string
	// numeric allows a number between prefix and suffix.
	numeric        bool
	prefix, suffix string
	// fractionAt is the column of the fraction, and fractionDigits its length. If the latter is
	// negative, the fraction follows a dot and has any length.
	fractionAt, fractionDigits int
	err                        error
}

// anyTimeFormat reads the usual formats of logs: RFC 3339 with any fraction, those of Apache and
// HAProxy, and numbers since 1970 in seconds, milliseconds, microseconds or
// nanoseconds, depending on their size. Times without a zone are in UTC.
var anyTimeFormat = &timeFormat{
	layouts: []string{
		time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
		"02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05",
	},
	numeric:        true,
	fractionDigits: -1,
	err:            errors.New("not a time; want 2026-11-22T09:00:00.123Z or seconds since 1970"),
}

// parsedSecond caches the time of the last line without its fraction, because the next line often
// has the same. Parsing it takes most of the time of reading a line.
type parsedSecond struct {
	// prefix and suffix surround the digits of the fraction, if fractional.
	prefix, suffix []byte
	fractional     bool
	// at is in nanoseconds since 1970. unit is the unit of the number before the fraction, in
	// nanoseconds.
	at, unit int64
}

// parse parses a time as nanoseconds since 1970, using the reader's cache.
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
	last.prefix = append(last.prefix[:0], b[:digits]...)
	last.suffix = append(last.suffix[:0], b[to:]...)
	last.fractional = digits < to
	last.at = at
	last.unit = unit
	nanos, ok := c.parseFraction(b, last)
	if !ok {
		return 0, c.err
	}
	return at + nanos, nil
}

// parseFraction returns the nanoseconds of the fraction; ok is false if the rest of the time
// differs from the cached one.
func (c *timeFormat) parseFraction(b []byte, last *parsedSecond) (nanos int64, ok bool) {
	if len(last.prefix) == 0 && len(last.suffix) == 0 || !bytes.HasPrefix(b, last.prefix) {
		return 0, false
	}
	b = b[len(last.prefix):]
	i := 0
	if last.fractional {
		for scale := last.unit; i < len(b) && b[i]-'0' <= 9 && (c.fractionDigits < 0 || i < c.fractionDigits); i++ {
			scale /= 10
			nanos += int64(b[i]-'0') * scale
		}
	}
	return nanos, (i > 0) == last.fractional && (c.fractionDigits < 0 || i == c.fractionDigits) &&
		bytes.Equal(b[i:], last.suffix)
}

// findFraction returns the bounds of a time's fraction, including its dot, and the start of its
// digits. from is negative if the fraction is misplaced.
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
		return -1, 0, 0 // not the fraction of a second
	}
	return from, from + 1, to
}

// parseSeconds parses a time without a fraction.
func (c *timeFormat) parseSeconds(text string) (at, unit int64, err error) {
	if number, ok := c.timestamp(text); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		// Times from 1973 to 5138 are unambiguous: in seconds they have at most 11 digits, in
		// milliseconds 12 to 14.
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
		t, bad := time.ParseInLocation(layout, text, time.UTC) // ignore the local time zone
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

var errRange = errors.New("before 1970 or after 2261")

// zoneName is the abbreviation of a time zone in layouts, strftime's %Z.
const zoneName = "MST"

// isUTC reports whether the abbreviation of the zone is one of UTC. Others are ambiguous: CST is
// used in America and in China.
func isUTC(t time.Time) bool {
	name, offset := t.Zone()
	return offset == 0 && (name == "UTC" || name == "GMT")
}

func (c *timeFormat) timestamp(text string) (digits string, ok bool) {
	text, begins := strings.CutPrefix(text, c.prefix)
	text, ends := strings.CutSuffix(text, c.suffix)
	return text, c.numeric && begins && ends && text != "" && strings.Trim(text, "0123456789") == ""
}

// strftimeLayouts maps conversions of strftime to layouts of package time.
var strftimeLayouts = map[string]string{
	"Y": "2006", "y": "06", "m": "01", "b": "Jan", "d": "02", "e": "_2", "H": "15", "M": "04", "S": "05",
	"z": "-0700", "Z": zoneName, "T": "15:04:05", "F": "2006-01-02", "D": "01/02/06", "R": "15:04", "%": "%",
}

// newTimeFormat parses a format of START_TIME, such as %Y-%m-%dT%H:%M:%S.%3fZ or %s.%9f.
// Conversions have the width that Envoy writes.
func newTimeFormat(format string) (*timeFormat, error) {
	c := &timeFormat{err: errors.New("not a time in the format of START_TIME")}
	// c.suffix collects the layout, and example a time in it.
	at := time.Date(2021, 12, 23, 21, 56, 57, 0, time.UTC)
	example := ""
	calendar := false
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
			c.numeric = true
			c.prefix = example
			c.suffix = ""
			example += "1700000000" // has as many digits as any time
		case strings.HasSuffix(conversion, "f") && c.fractionDigits == 0:
			c.fractionDigits = 9
			if conversion != "f" {
				c.fractionDigits = int(conversion[0] - '0')
			}
			c.fractionAt = len(example)
		default:
			return nil, fmt.Errorf("--format: START_TIME(%s): unsupported conversion after %q; use %%s, %%Y, %%m, %%b, %%d, %%H, %%M, %%S, %%f, %%1f to %%9f, %%z, %%F or %%T",
				format, format[:len(format)-len(next)])
		}
	}
	if c.numeric && !calendar {
		return c, nil
	}
	c.layouts = []string{c.suffix}
	c.suffix = ""
	if strings.Contains(c.layouts[0], zoneName) {
		c.err = errors.New("not a time in the format of START_TIME, or not in UTC; abbreviations of other zones are ambiguous: use %z instead of %Z")
	}
	if t, err := time.Parse(c.layouts[0], example); err != nil || !t.Equal(at) {
		return nil, fmt.Errorf("--format: START_TIME(%s) is not a complete time, or contains text that looks like part of one; want %%s, or year to second", format)
	}
	return c, nil
}
