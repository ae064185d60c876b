package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// w3cFormat reads the W3C's extended log file format (WD-logfile-960323), which IIS, CloudFront and
// others write. Comments start with #. The comment #Fields: (in Zeek, #fields) names the values of
// the following lines, up to the next one. Values are separated by tabs or spaces; quoted values
// may contain spaces. If lines have a time but no date, #Date: has the date.
type w3cFormat struct {
	namedFields         // of all #Fields: lines in the sample
	header      []byte  // the first #Fields: of the sample, for lines without one above
	layout      *layout // the selected fields
}

// w3cColumns describes the columns below a #Fields: line.
type w3cColumns struct {
	names string
	slots []int // by column, or -1
	// zeek reports that values have Zeek's escapes.
	zeek bool
	// dateColumn and timeColumn are the columns of the parts of the time, or -1 if it is one value.
	dateColumn, timeColumn int
}

var (
	fieldsComment, zeekFieldsComment, dateComment = []byte("#Fields:"), []byte("#fields\t"), []byte("#Date:")

	errColumnCount = errors.New("the number of values differs from the #Fields: line")
	errNoDate      = errors.New("#Fields: has a time without a date, and no #Date: precedes it, or a date without a time; configure the server to log both")
)

// cutFieldsComment returns the field names of a #Fields: line.
func cutFieldsComment(line []byte) (names []byte, ok bool) {
	if names, ok = bytes.CutPrefix(line, fieldsComment); ok {
		return names, true
	}
	return bytes.CutPrefix(line, zeekFieldsComment)
}

// isComment reports whether a line is one of IIS' comments, which it also writes into logs of its
// own format.
func isComment(line []byte) bool {
	return slices.ContainsFunc([]string{"#Software:", "#Version:", "#Date:", "#Fields:"}, func(begin string) bool { return strings.HasPrefix(string(line), begin) })
}

// w3cDay is the day of a #Date: line.
type w3cDay struct {
	day, next string
	// from is the time of day before which a time belongs to the next day. Lines may be an hour
	// older than the comment.
	from string
}

// parseDateComment parses the value of a #Date: line. It returns nil unless the value has IIS'
// format.
func parseDateComment(value []byte) *w3cDay {
	at, err := time.Parse(time.DateTime, string(bytes.TrimSpace(value)))
	if err != nil {
		return nil
	}
	from := at.Add(-time.Hour)
	if from.Day() != at.Day() {
		from = at.Truncate(24 * time.Hour)
	}
	return &w3cDay{at.Format(time.DateOnly), at.AddDate(0, 0, 1).Format(time.DateOnly), from.Format(time.TimeOnly)}
}

func (d *w3cDay) dateOf(clock []byte) string {
	if string(clock) < d.from {
		return d.next
	}
	return d.day
}

func (*w3cFormat) info() formatInfo {
	return fieldFormatInfo("w3c", "the W3C extended format", maxLineBytes)
}

func newW3CFormat(fields map[string]string, sample [][]byte) (lineParser, error) {
	f := &w3cFormat{namedFields: namedFields{renamed: fields}}
	dated := false
	for _, line := range sample {
		if value, ok := bytes.CutPrefix(line, dateComment); ok {
			dated = dated || parseDateComment(value) != nil
		}
		names, ok := cutFieldsComment(line)
		if !ok {
			continue
		}
		if f.header == nil {
			f.header = bytes.Clone(names)
		}
		for name := range strings.FieldsSeq(string(names)) {
			f.observeName(name)
		}
	}
	if f.header == nil {
		return nil, errors.New("no line starts with #Fields:, which names the columns")
	}
	if p := newW3CColumns(f.renamed, f.header, newLayout()); p.dateColumn >= 0 && p.timeColumn < 0 || p.dateColumn < 0 && p.timeColumn >= 0 && !dated {
		return nil, errNoDate
	}
	return f, f.checkRenamed()
}

// newW3CColumns returns the columns of a #Fields: line.
func newW3CColumns(renamed map[string]string, names []byte, l *layout) *w3cColumns {
	p := &w3cColumns{names: string(names), zeek: bytes.Contains(names, []byte("\tid.orig_h\t")), dateColumn: -1, timeColumn: -1}
	f, columns := namedFields{renamed: renamed}, strings.Fields(p.names)
	for _, name := range columns {
		f.observeName(name)
	}
	p.slots = slices.Repeat([]int{-1}, len(columns))
	slots := f.slotsByName(l, nil)
	for i, name := range columns {
		if slot, wanted := slots[name]; wanted {
			p.slots[i] = slot
		}
	}
	for _, pair := range [][2]string{{"date", "time"}, {"date-local", "time-local"}} {
		if logName := f.logName(fieldTime); logName == "" || logName == pair[1] {
			if p.dateColumn, p.timeColumn = slices.Index(columns, pair[0]), slices.Index(columns, pair[1]); p.dateColumn >= 0 || p.timeColumn >= 0 {
				break
			}
		}
	}
	return p
}

func (f *w3cFormat) bind(l *layout) error {
	f.layout = l
	return nil
}

// logName also finds the time if its second part is in the column time-local.
func (f *w3cFormat) logName(name string) string {
	logName := f.namedFields.logName(name)
	if logName == "" && name == fieldTime && f.seen["time-local"] > 0 {
		return "time-local"
	}
	return logName
}

func (f *w3cFormat) read(line []byte, l *Line, request func(error) error) error {
	if line[0] == '#' {
		f.applyComment(l, line)
		return errHeader
	}
	if len(bytes.TrimLeft(line, " \t")) == 0 {
		return errHeader // empty line
	}
	if l.w3c == nil {
		f.setColumns(l, f.header)
	}
	if err := l.w3c.read(line, l); err != nil {
		return err
	}
	return request(nil)
}

// applyComment applies a comment to the following lines.
func (f *w3cFormat) applyComment(l *Line, line []byte) {
	if names, ok := cutFieldsComment(line); ok {
		f.setColumns(l, names)
	} else if value, ok := bytes.CutPrefix(line, dateComment); ok {
		l.w3cDate = parseDateComment(value)
	}
}

func (f *w3cFormat) setColumns(l *Line, names []byte) {
	if l.w3c == nil || l.w3c.names != string(names) {
		l.w3c = newW3CColumns(f.renamed, names, f.layout)
	}
}

func (p *w3cColumns) read(line []byte, l *Line) error {
	var date, time []byte
	var dateAt, timeAt, n int
	separator := byte(' ') // in a line with tabs, only tabs separate values
	if bytes.IndexByte(line, '\t') >= 0 {
		separator = '\t'
	}
	for at := 0; at < len(line); n++ {
		if n == len(p.slots) {
			return &LineError{at, errColumnCount}
		}
		value, from, next := l.nextW3CValue(line, at, separator)
		switch n {
		case p.dateColumn:
			date, dateAt = value, from
		case p.timeColumn:
			time, timeAt = value, from
		default:
			slot := p.slots[n]
			if slot < 0 || isAbsent(value) || p.zeek && string(value) == "(empty)" {
				break
			}
			if p.zeek {
				value = l.unescapeZeek(value)
			}
			l.set(slot, from, value)
		}
		at = next
	}
	if n == len(p.slots)-1 && line[len(line)-1] == '\t' {
		n++ // the last value is empty
	}
	if n < len(p.slots) {
		return &LineError{len(line), errColumnCount}
	}
	switch {
	case p.timeColumn < 0:
	case p.dateColumn < 0 && l.w3cDate == nil:
		return &LineError{timeAt, errNoDate}
	case p.dateColumn < 0:
		start := len(l.Scratch)
		l.Scratch = append(append(append(l.Scratch, l.w3cDate.dateOf(time)...), ' '), time...)
		l.set(slotTime, timeAt, slices.Clip(l.Scratch[start:]))
	case dateAt+len(date)+1 == timeAt && line[dateAt] != '"' && line[timeAt] != '"':
		l.set(slotTime, dateAt, line[dateAt:timeAt+len(time)])
	default:
		start := len(l.Scratch)
		l.Scratch = append(append(append(l.Scratch, date...), ' '), time...)
		l.set(slotTime, dateAt, slices.Clip(l.Scratch[start:]))
	}
	return nil
}

// nextW3CValue returns the value at column at, its start, and the column of the next value.
func (l *Line) nextW3CValue(line []byte, at int, separator byte) (value []byte, from, next int) {
	if line[at] == '"' {
		if value, next, ok := l.quotedW3CValue(line, at); ok {
			return value, at, next
		}
	}
	end := bytes.IndexByte(line[at:], separator)
	if end < 0 {
		return line[at:], at, len(line)
	}
	return line[at : at+end], at, afterSeparator(line, at+end)
}

// quotedW3CValue reads a quoted value, in which a doubled quote stands for one. ok is false if no
// quote ends it; it is then an unquoted value that starts with a quote.
func (l *Line) quotedW3CValue(line []byte, at int) (value []byte, next int, ok bool) {
	start := len(l.Scratch)
	for i := at + 1; ; {
		j := bytes.IndexByte(line[i:], '"')
		if j < 0 {
			l.Scratch = l.Scratch[:start]
			return nil, 0, false
		}
		l.Scratch = append(l.Scratch, line[i:i+j]...)
		i += j + 1
		if i < len(line) && line[i] == '"' {
			l.Scratch = append(l.Scratch, '"')
			i++
			continue
		}
		if i < len(line) && line[i] != ' ' && line[i] != '\t' {
			l.Scratch = l.Scratch[:start]
			return nil, 0, false
		}
		return slices.Clip(l.Scratch[start:]), afterSeparator(line, i), true
	}
}

// unescapeZeek resolves Zeek's escapes: \xHH is a byte and two backslashes are one.
func (l *Line) unescapeZeek(value []byte) []byte {
	if bytes.IndexByte(value, '\\') < 0 {
		return value
	}
	start := len(l.Scratch)
	for len(value) > 0 {
		c, length := value[0], 1
		switch {
		case bytes.HasPrefix(value, []byte(`\\`)):
			length = 2
		case bytes.HasPrefix(value, []byte(`\x`)) && len(value) >= 4:
			if n, err := strconv.ParseUint(string(value[2:4]), 16, 8); err == nil {
				c, length = byte(n), 4
			}
		}
		l.Scratch, value = append(l.Scratch, c), value[length:]
	}
	return slices.Clip(l.Scratch[start:])
}

// afterSeparator returns the column after the separator at column at. Consecutive spaces are one
// separator, consecutive tabs are several.
func afterSeparator(line []byte, at int) int {
	if at == len(line) {
		return at
	}
	spaces := line[at] == ' '
	for at++; spaces && at < len(line) && line[at] == ' '; at++ {
	}
	return at
}

// trackComments sets the comments of each chunk to the last ones above it in the log.
func trackComments(yield func(Chunk) error) func(Chunk) error {
	var fields, date []byte
	return func(c Chunk) error {
		c.comments = [][]byte{fields, date}
		var laterFields, laterDate []byte
		for to := len(c.Bytes); laterFields == nil || laterDate == nil; {
			if to = bytes.LastIndexByte(c.Bytes[:to], '#'); to < 0 {
				break
			}
			if to > 0 && c.Bytes[to-1] != '\n' {
				continue
			}
			line, _, _ := bytes.Cut(c.Bytes[to:], newline)
			if _, ok := cutFieldsComment(line); ok && laterFields == nil {
				laterFields = bytes.Clone(bytes.TrimSuffix(line, carriageReturn))
			} else if bytes.HasPrefix(line, dateComment) && laterDate == nil {
				laterDate = bytes.Clone(line)
			}
		}
		if laterFields != nil {
			fields = laterFields
		}
		if laterDate != nil {
			date = laterDate
		}
		return yield(c)
	}
}
