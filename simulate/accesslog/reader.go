package accesslog

import (
	"bytes"
	"errors"
	"fmt"
)

// BadLine is an unreadable line.
type BadLine struct {
	Log string `json:"log"`
	// Line and Column are counted from 1.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
	// Excerpt is the start of the line.
	Excerpt string `json:"excerpt"`
}

// String formats the line for messages.
func (b BadLine) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %q", b.Log, b.Line, b.Column, b.Reason, b.Excerpt)
}

// Counts counts lines.
type Counts struct {
	// Rows counts all lines, and Read the nonempty ones.
	Rows, Read int
	// NoRequest counts the lines that are not about a request.
	NoRequest int
	// Bad counts the unreadable lines; FirstBad contains the first of them.
	Bad      int
	FirstBad []BadLine
}

// maxFirstBad limits Counts.FirstBad.
const maxFirstBad = 5

// Add adds the counts of a chunk that starts after the given row of a log.
func (c *Counts) Add(of *Counts, log string, row int) {
	c.Rows += of.Rows
	c.Read += of.Read
	c.NoRequest += of.NoRequest
	c.Bad += of.Bad
	for _, bad := range of.FirstBad[:min(len(of.FirstBad), maxFirstBad-len(c.FirstBad))] {
		bad.Log = log
		bad.Line = row + bad.Line
		c.FirstBad = append(c.FirstBad, bad)
	}
}

// Reader parses chunks of logs. It is not safe for concurrent use.
type Reader struct {
	format *Format
	now    int64
	handle func(*Line) error

	line    *Line
	current []byte
	counts  Counts
}

// NewReader returns a reader for a prepared format. It calls handle for each request with a
// readable time that is not after now, in nanoseconds since 1970. If handle returns an error, the
// line counts as bad.
func (f *Format) NewReader(now int64, handle func(*Line) error) *Reader {
	return &Reader{format: f, now: now, handle: handle, line: newLine(f.layout)}
}

var (
	newline, carriageReturn = []byte("\n"), []byte("\r")

	errFuture  = errors.New("is in the future")
	errTooLong = fmt.Errorf("line is longer than %d MiB", maxLineBytes>>20)
)

// Read parses a chunk and returns its counts.
func (r *Reader) Read(c Chunk) Counts {
	r.counts = Counts{}
	if c.tooLong {
		r.counts.Rows = 1
		r.counts.Read = 1
		r.current = nil
		r.countBad(&LineError{0, errTooLong})
		return r.counts
	}
	for rest := c.Bytes; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, newline)
		r.counts.Rows++
		if line = bytes.TrimSuffix(line, carriageReturn); len(line) > 0 {
			r.readLine(line)
		}
	}
	return r.counts
}

// Row returns the number of the current line in its chunk, from 1.
func (r *Reader) Row() int { return r.counts.Rows }

func (r *Reader) readLine(line []byte) {
	r.current = line
	r.counts.Read++
	if len(line) > maxLineBytes {
		r.countBad(&LineError{0, errTooLong})
		return
	}
	switch err := r.handleLine(line); {
	case errors.Is(err, errNoRequest):
		r.counts.NoRequest++
	case err != nil:
		r.countBad(err)
	}
}

// handleLine parses a line and passes its request to the handler.
func (r *Reader) handleLine(line []byte) error {
	r.line.clear()
	if err := r.format.parser.read(line, r.line); err != nil {
		return err
	}
	if !r.line.hasRequest(r.format.layout.requestSlots) {
		return errNoRequest
	}
	r.line.derive(r.format.layout.derived)
	err := r.line.readTime(r.format.layout.timeFormat)
	if err == nil && r.line.At > r.now {
		err = &LineError{r.line.Column(slotTime), fmt.Errorf("time %q %w", r.line.values[slotTime], errFuture)}
	}
	if err == nil {
		err = r.handle(r.line)
	}
	return err
}

// countBad counts an unreadable line.
func (r *Reader) countBad(err error) {
	r.counts.Bad++
	if len(r.counts.FirstBad) == maxFirstBad {
		return
	}
	column := 0
	if at, ok := errors.AsType[*LineError](err); ok {
		column = at.Column
		err = at.Err
	}
	r.counts.FirstBad = append(r.counts.FirstBad,
		BadLine{Line: r.counts.Rows, Column: column + 1, Reason: err.Error(), Excerpt: truncate(r.current)})
}
