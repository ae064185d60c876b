package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// w3cFormat is the extended log file format of the W3C (WD-logfile-960323), which IIS, CloudFront
// and others write: comments begin with #, and the comment #Fields:, which Zeek writes as #fields, names
// the values of the lines below it, until another one does. Values are separated by tabs or by spaces;
// one in quotes may have spaces in it. Where there is a time without a date, #Date: has the date.
type w3cFormat struct {
	namedFields         // of all lines of #Fields: in the sample
	header      []byte  // the names of the first one, for lines above which there is none
	layout      *layout // which fields are wanted
}

// w3cColumns is how the lines below one #Fields: are read.
type w3cColumns struct {
	names string
	slots []int // by column, -1 for a value that is not wanted
	// zeek says that values are escaped as Zeek does.
	zeek bool
	// date and time are the columns of the two parts of the time, -1 where it is one value.
	dateColumn, timeColumn int
}

var (
	fieldsComment, zeekFieldsComment, dateComment = []byte("#Fields:"), []byte("#fields\t"), []byte("#Date:")

	errColumnCount = errors.New("has more or fewer values than #Fields: names")
	errNoDate      = errors.New("#Fields: names a time without a date, which no #Date: above it has, or a date without a time: have the server log both")
)

// cutFieldsComment returns the names of the fields that a line of the sample or of the log gives, if it is the comment for that.
func cutFieldsComment(line []byte) (names []byte, ok bool) {
	if names, ok = bytes.CutPrefix(line, fieldsComment); ok {
		return names, true
	}
	return bytes.CutPrefix(line, zeekFieldsComment)
}

// isComment reports whether a line is one of the comments that IIS writes above its lines, those of its own format too.
func isComment(line []byte) bool {
	return slices.ContainsFunc([]string{"#Software:", "#Version:", "#Date:", "#Fields:"}, func(begin string) bool { return strings.HasPrefix(string(line), begin) })
}

// w3cDay is the day that a #Date: names, for times without a date.
type w3cDay struct {
	day, next string
	// from is the time of day before which a time is of the next day: lines may be an hour older than the comment.
	from string
}

// parseDateComment reads the value of a #Date:. It returns nil if that is not a time as IIS writes it.
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

// dateOf returns the date of a time of day.
func (d *w3cDay) dateOf(clock []byte) string {
	if string(clock) < d.from {
		return d.next
	}
	return d.day
}

func (*w3cFormat) info() formatInfo {
	return fieldFormatInfo("w3c", "the W3C's extended format", maxLineBytes)
}

// newW3CFormat returns nil if no line of the sample names fields.
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
		return nil, errors.New("no line that begins with #Fields: names the values")
	}
	if p := newW3CColumns(f.renamed, f.header, newLayout()); p.dateColumn >= 0 && p.timeColumn < 0 || p.dateColumn < 0 && p.timeColumn >= 0 && !dated {
		return nil, errNoDate
	}
	return f, f.checkRenamed()
}

// newW3CColumns finds where the values of the fields go that a #Fields: names.
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
		if called := f.logName(fieldTime); called == "" || called == pair[1] {
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

// logName knows the time by the names of its second part too.
func (f *w3cFormat) logName(name string) string {
	called := f.namedFields.logName(name)
	if called == "" && name == fieldTime && f.seen["time-local"] > 0 {
		return "time-local"
	}
	return called
}

func (f *w3cFormat) read(line []byte, l *Line, request func(error) error) error {
	if line[0] == '#' {
		f.applyComment(l, line)
		return errHeader
	}
	if len(bytes.TrimLeft(line, " \t")) == 0 {
		return errHeader // it is empty
	}
	if l.w3c == nil {
		f.setColumns(l, f.header)
	}
	if err := l.w3c.read(line, l); err != nil {
		return err
	}
	return request(nil)
}

// applyComment takes over what a comment says of the lines below it.
func (f *w3cFormat) applyComment(l *Line, line []byte) {
	if names, ok := cutFieldsComment(line); ok {
		f.setColumns(l, names)
	} else if value, ok := bytes.CutPrefix(line, dateComment); ok {
		l.w3cDate = parseDateComment(value)
	}
}

// setColumns has the lines that follow read as the names of a #Fields: say.
func (f *w3cFormat) setColumns(l *Line, names []byte) {
	if l.w3c == nil || l.w3c.names != string(names) {
		l.w3c = newW3CColumns(f.renamed, names, f.layout)
	}
}

// read sets the values of a line.
func (p *w3cColumns) read(line []byte, l *Line) error {
	var date, time []byte
	var dateAt, timeAt, n int
	separator := byte(' ') // a tab always separates values; spaces do in lines without tabs
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

// nextW3CValue returns the value of a line that begins at a column, where it stands, and where the next
// one begins.
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

// quotedW3CValue reads a value in quotes, in which two quotes are one. ok is false if no quote ends it: it
// is then a value without quotes that begins with one.
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

// unescapeZeek returns what a value of Zeek's stands for, in which \xHH is a byte and two backslashes are
// one.
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

// afterSeparator returns where the value after the separator at a column begins: several spaces are
// one separator, several tabs are not.
func afterSeparator(line []byte, at int) int {
	if at == len(line) {
		return at
	}
	spaces := line[at] == ' '
	for at++; spaces && at < len(line) && line[at] == ' '; at++ {
	}
	return at
}

// trackComments has each chunk know the comments that the log had last above it.
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
