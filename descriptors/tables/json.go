package tables

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// maxLineBytes bounds a line of JSON.
const maxLineBytes = 1 << 16

// lineReader reads JSON objects, one on each line.
type lineReader struct {
	b       *builder
	line    int
	scanner jsonview.Scanner
	row     parsedRow
	values  []string
	given   []bool // parallel to values: true for those in the line
	scratch []byte
	fields  []string // the [RowFields] of the line
}

// readJSON reads lines of JSON. The first line determines the columns.
func (b *builder) readJSON(in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxLineBytes)
	r := lineReader{b: b}
	for lines.Scan() {
		r.line++
		if len(bytes.TrimSpace(lines.Bytes())) > 0 && r.read(lines.Bytes()) {
			return
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a row is longer than %d KiB", maxLineBytes>>10)
		}
		b.fail(r.line+1, 1, "%v", err)
	}
}

// read reads a line. It returns true if reading must end.
func (r *lineReader) read(line []byte) (end bool) {
	first := r.b.columns == nil
	r.scanner = jsonview.Scanner{Bytes: line}
	r.row = parsedRow{}
	r.fields = r.fields[:0]
	r.scratch = r.scratch[:0]
	clear(r.given)
	err := r.scanner.Object(func(key []byte) error { return r.field(string(key), first) })
	if err == nil && r.scanner.Next() != 0 {
		err = jsonview.ErrSyntax
	}
	if err == nil {
		err = r.complete(first)
	}
	if err == nil {
		if err := r.b.add(r.values, r.row.Row, r.line); err != nil {
			r.b.fail(r.line, 1, "%v", err)
			return true
		}
		return false
	}
	if err == jsonview.ErrSyntax { //nolint:errorlint // it is not wrapped
		err = errors.New("not a JSON object on one line, such as {\"customer\":\"acme\",\"requests_per_unit\":500}")
	}
	// Without the first line the columns are unknown.
	return r.b.fail(r.line, r.scanner.Offset+1, "%v", err) || first
}

// field reads the value of a field.
func (r *lineReader) field(key string, first bool) (err error) {
	var text []byte
	switch r.scanner.Next() {
	case '{', '[':
		return fmt.Errorf("%q is an object or a list; it must be one value", rules.Shorten(key))
	}
	if text, r.scratch, err = r.scanner.Value(r.scratch); err != nil || text == nil {
		return err // null counts as absent
	}
	if slices.Contains(RowFields, key) {
		if slices.Contains(r.fields, key) {
			return fmt.Errorf("duplicate field %q", key)
		}
		r.fields = append(r.fields, key)
		return r.row.set(key, string(text))
	}
	i := slices.Index(r.b.columns, key)
	switch {
	case i >= 0 && r.given[i]:
		return fmt.Errorf("duplicate field %q", rules.Shorten(key))
	case i < 0 && !first:
		return fmt.Errorf("unknown column %q%s (allowed: %s)", rules.Shorten(key),
			rules.DidYouMean(key, append(slices.Clone(RowFields), r.b.columns...)),
			strings.Join(r.b.columns, ", "))
	case i < 0:
		i = len(r.b.columns)
		r.b.columns = append(r.b.columns, key)
		r.values = append(r.values, "")
		r.given = append(r.given, false)
	}
	r.values[i] = string(text)
	r.given[i] = true
	return nil
}

// complete checks the fields of a line together.
func (r *lineReader) complete(first bool) error {
	if first {
		if err := CheckColumns(r.b.columns); err != nil {
			return err
		}
	}
	if i := slices.Index(r.given, false); i >= 0 {
		return fmt.Errorf("column %q is missing, which the first line has", r.b.columns[i])
	}
	if err := r.row.check(); err != nil {
		return err
	}
	return checkValues(r.values)
}
