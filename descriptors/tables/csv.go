package tables

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Read reads the rows of a file: CSV with a header. They are nil if a diagnostic is an error. A file without a final newline may be truncated: a warning names its
// last row. [Table.Replace] activates the rows.
func (t *Table) Read(file string, from io.Reader) (*Rows, rules.Diagnostics) {
	b := &builder{file: file, hasher: t.Rows().hasher, found: rules.Findings{Max: maxErrors}}
	end := &endReader{in: from}
	in := bufio.NewReaderSize(end, 1<<16)
	switch start, _ := in.Peek(3); {
	case string(start) == "\ufeff":
		_, _ = in.Discard(3) // the byte order mark that spreadsheets write
	case bytes.HasPrefix(start, []byte("\xff\xfe")), bytes.HasPrefix(start, []byte("\xfe\xff")):
		b.fail(1, 1, "the file is UTF-16; write it as UTF-8")
		return nil, b.found.All
	}
	if b.readCSV(in); b.found.All != nil {
		return nil, b.found.All
	}
	rows := b.build()
	if rows != nil && end.last != '\n' {
		b.warnUnfinished()
	}
	return rows, b.found.All
}

// endReader records the last byte that it read, and the error that ended reading. A truncated HTTP
// body returns its error once, and [io.EOF] afterwards.
type endReader struct {
	in   io.Reader
	last byte
	err  error
}

func (r *endReader) Read(p []byte) (n int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if n, r.err = r.in.Read(p); n > 0 {
		r.last = p[n-1]
	}
	return n, r.err
}

// readCSV reads CSV as in RFC 4180.
func (b *builder) readCSV(in io.Reader) {
	bounded := &recordBound{in: in, left: maxRecordBytes, line: 1}
	r := csv.NewReader(bounded)
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		b.failCSV(r, bounded.line, err)
		return
	}
	fields, keys, err := splitHeader(header)
	if err != nil {
		b.fail(1, 1, "%v", err)
		return
	}
	for _, at := range keys {
		b.columns = append(b.columns, strings.Clone(header[at]))
	}
	values := make([]string, len(keys))
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			if b.failCSV(r, bounded.line, err) {
				return
			}
			continue
		}
		if b.csvRow(r, record, fields, keys, values) {
			return
		}
	}
}

// recordBound bounds the size of a record: after an unclosed quote, the rest of a file is one
// record. An empty line outside quotes ends a record, too.
type recordBound struct {
	in   io.Reader
	left int // number of bytes that the last record may still take
	line int // line of its start
	// quoted is true if the last byte is between quotes, and lines is the number of newlines there.
	quoted bool
	lines  int
}

// maxRecordBytes bounds a row of CSV.
const maxRecordBytes = 1 << 16

func (r *recordBound) Read(p []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("a row is longer than %d KiB; is a quote not closed?", maxRecordBytes>>10)
	}
	n, err = r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	for rest := p[:n]; ; {
		part, after, quote := bytes.Cut(rest, []byte(`"`))
		newlines := bytes.Count(part, []byte("\n"))
		if r.quoted {
			r.lines += newlines
		} else if newlines > 0 {
			r.left = maxRecordBytes - (len(rest) - bytes.LastIndexByte(part, '\n') - 1)
			r.line = r.line + r.lines + newlines
			r.lines = 0
		}
		if !quote {
			return n, err
		}
		r.quoted = !r.quoted
		rest = after
	}
}

// csvRow adds a record. It returns true if reading must end.
func (b *builder) csvRow(r *csv.Reader, record []string, fields []string, keys []int, values []string) (end bool) {
	var row parsedRow
	for i, field := range fields {
		if field == "" {
			continue
		}
		if err := row.set(field, strings.TrimSpace(record[i])); err != nil {
			line, col := r.FieldPos(i)
			return b.fail(line, col, "%v", err)
		}
	}
	for i, at := range keys {
		values[i] = record[at]
	}
	line, col := r.FieldPos(0)
	err := row.check()
	if err == nil {
		err = checkValues(values)
	}
	if err != nil {
		return b.fail(line, col, "%v", err)
	}
	if err := b.add(values, row.Row, line); err != nil {
		b.fail(line, col, "%v", err)
		return true
	}
	return false
}

// failCSV reports a CSV or read error in the record that begins at line. It returns true if reading
// must end.
func (b *builder) failCSV(r *csv.Reader, line int, err error) (end bool) {
	wrong, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, io.EOF):
		return b.fail(1, 1, "the file is empty; its first line must be a header, such as customer,requests_per_unit")
	case !ok:
		b.fail(line, 1, "%v", err)
		return true
	case errors.Is(err, csv.ErrFieldCount):
		return b.fail(wrong.Line, 1, "the row must have %d columns, like the header", r.FieldsPerRecord)
	default:
		b.fail(wrong.Line, wrong.Column, "invalid CSV: %v", wrong.Err)
		return true
	}
}

// splitHeader splits a header into row fields and key columns. fields is parallel to the header,
// with "" for key columns.
func splitHeader(header []string) (fields []string, keys []int, err error) {
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t") {
		return nil, nil, fmt.Errorf("the header %q is one column; separate columns by commas", rules.Shorten(header[0]))
	}
	fields = make([]string, len(header))
	var columns []string
	for i, column := range header {
		if column = strings.TrimSpace(column); slices.Contains(RowFields, column) {
			if slices.Contains(fields, column) {
				return nil, nil, fmt.Errorf("duplicate column %q", column)
			}
			fields[i] = column
			continue
		}
		header[i] = column
		columns = append(columns, column)
		keys = append(keys, i)
	}
	if !slices.Contains(fields, fieldNumber) && !slices.Contains(fields, fieldUnlimited) {
		return nil, nil, fmt.Errorf("the header %q has no column requests_per_unit%s; name key columns after entries of the rule, such as customer; the other columns are unit, burst, unlimited and name",
			rules.Shorten(strings.Join(header, ",")), nearColumn(columns))
	}
	return fields, keys, CheckColumns(columns)
}

// nearColumn returns a hint at the column that may be a misspelling of requests_per_unit, or "".
func nearColumn(columns []string) string {
	if near := rules.Suggest(fieldNumber, columns); near != "" {
		return fmt.Sprintf(" (is %q a misspelling?)", near)
	}
	return ""
}
