package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// csvFormat reads comma-separated values (RFC 4180) with a header line. A field cannot contain a
// newline.
type csvFormat struct {
	namedFields
	header  []byte
	columns []string
	slots   []int
}

var (
	errQuote  = errors.New("unterminated quote, or text after a quote")
	errFields = errors.New("the number of fields differs from the header")
)

func (*csvFormat) info() formatInfo { return fieldFormatInfo("csv", "CSV", maxLineBytes) }

func newCSVFormat(names map[string]string, sample [][]byte) (lineParser, error) {
	f := &csvFormat{namedFields: namedFields{renamed: names}, header: sample[0]}
	err := eachField(sample[0], new([]byte), func(_, _ int, value []byte) {
		f.observeName(string(value))
		f.columns = append(f.columns, string(value)) // a repeated name means its first column
	})
	if err != nil || len(f.columns) < 2 {
		return nil, fmt.Errorf("the first line is not a CSV header: %q", truncate(sample[0]))
	}
	for _, line := range sample[1:] {
		_ = eachField(line, new([]byte), func(i, _ int, value []byte) { // bad lines are counted later
			if i < len(f.columns) {
				f.observeValue(f.columns[i], value)
			}
		})
	}
	return f, f.checkRenamed()
}

func (f *csvFormat) bind(l *layout) error {
	f.slots = slices.Repeat([]int{-1}, len(f.columns))
	for slot, name := range l.names {
		if i := slices.Index(f.columns, f.logName(name)); i >= 0 {
			f.slots[i] = slot
		}
	}
	return nil
}

func (f *csvFormat) read(line []byte, l *Line, request func(error) error) error {
	if bytes.Equal(line, f.header) {
		return errHeader
	}
	n := 0
	err := eachField(line, &l.Scratch, func(i, column int, value []byte) {
		n++
		if i < len(f.slots) && f.slots[i] >= 0 && !isAbsent(value) {
			l.set(f.slots[i], column, value)
		}
	})
	switch {
	case err != nil:
		return err
	case n != len(f.columns):
		return &LineError{len(line), errFields}
	default:
		return request(nil)
	}
}

// eachField calls use with each field of a line. Fields with quotes are unescaped into scratch.
func eachField(line []byte, scratch *[]byte, use func(i, column int, value []byte)) error {
	for i, at := 0, 0; ; i++ {
		column := at
		if at == len(line) || line[at] != '"' {
			j := bytes.IndexByte(line[at:], ',')
			if j < 0 {
				use(i, column, line[at:])
				return nil
			}
			use(i, column, line[at:at+j])
			at += j + 1
			continue
		}
		from := len(*scratch)
		for at++; ; at++ {
			j := bytes.IndexByte(line[at:], '"')
			if j < 0 {
				return &LineError{column, errQuote}
			}
			*scratch = append(*scratch, line[at:at+j]...)
			if at += j + 1; at == len(line) || line[at] != '"' {
				break
			}
			*scratch = append(*scratch, '"')
		}
		use(i, column, slices.Clip((*scratch)[from:]))
		switch {
		case at == len(line):
			return nil
		case line[at] != ',':
			return &LineError{at, errQuote}
		}
		at++
	}
}
