package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// BadLine is a line that could not be read.
type BadLine struct {
	Log string `json:"log"`
	// Line and Column are counted from 1.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
	// Excerpt is what the line begins with.
	Excerpt string `json:"excerpt"`
}

// String writes a bad line for people.
func (b BadLine) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %q", b.Log, b.Line, b.Column, b.Reason, b.Excerpt)
}

// Counts are those of lines.
type Counts struct {
	// Rows counts all lines, and Read those of them that are not empty. Of a line with
	// several requests Read counts these.
	Rows, Read int
	// NoRequest counts the lines about something else than a request.
	NoRequest int
	// Bad counts the lines that cannot be read, and Worst has the first of them.
	Bad      int
	FirstBad []BadLine
}

// maxFirstBad is how many bad lines are kept.
const maxFirstBad = 5

// Add adds the counts of lines of a log that stand below row other ones.
func (c *Counts) Add(of *Counts, log string, row int) {
	c.Rows += of.Rows
	c.Read += of.Read
	c.NoRequest += of.NoRequest
	c.Bad += of.Bad
	for _, bad := range of.FirstBad[:min(len(of.FirstBad), maxFirstBad-len(c.FirstBad))] {
		bad.Log, bad.Line = log, row+bad.Line
		c.FirstBad = append(c.FirstBad, bad)
	}
}

// Reader reads chunks of logs. One goroutine uses it.
type Reader struct {
	format *Format
	now    int64
	// maxLine is the longest line, in bytes.
	maxLine int
	handle  func(*Line) error
	// onRequest is the method request.
	onRequest func(error) error

	line    *Line
	current []byte
	counts  Counts
}

// NewReader returns a reader of a settled format. It calls use with each request whose time
// can be read and is not after now, in nanoseconds since 1970. An error of use makes the
// line a bad one.
func (f *Format) NewReader(now int64, use func(*Line) error) *Reader {
	r := &Reader{format: f, now: now, maxLine: f.parser.info().maxLine, handle: use, line: newLine(f.layout)}
	r.onRequest = r.countRequest
	return r
}

var (
	newline, carriageReturn = []byte("\n"), []byte("\r")

	errFuture = errors.New("is in the future")
)

// errTooLong returns the error of a line that is longer than the longest one.
func errTooLong(longest int) error { return fmt.Errorf("is longer than %d MiB", longest>>20) }

// ReadChunks reads a log in chunks, to each of which it gives memory of its own, and calls yield
// with them. It returns an error of the log itself, or that of yield.
func (f *Format) ReadChunks(in io.Reader, yield func(Chunk) error) error {
	if _, ok := f.parser.(*w3cFormat); ok {
		yield = trackComments(yield)
	}
	return readChunks(in, f.parser.info().maxLine, yield)
}

// Read reads a chunk and returns what is to be counted of it.
func (r *Reader) Read(c Chunk) Counts {
	r.counts = Counts{}
	if c.tooLong {
		r.counts.Rows, r.counts.Read, r.current = 1, 1, nil
		r.countBad(&LineError{0, errTooLong(r.maxLine)})
		return r.counts
	}
	r.line.w3c, r.line.w3cDate = nil, nil
	if f, ok := r.format.parser.(*w3cFormat); ok {
		for _, line := range c.comments {
			f.applyComment(r.line, line)
		}
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

// readLine reads a line.
func (r *Reader) readLine(line []byte) {
	r.current = line
	if len(line) > r.maxLine {
		r.counts.Read++
		r.countBad(&LineError{0, errTooLong(r.maxLine)})
		return
	}
	r.line.clear()
	if err := r.format.parser.read(line, r.line, r.onRequest); err != nil && !errors.Is(err, errHeader) {
		r.counts.Read++
		r.countBad(err)
	}
}

// countRequest counts one request of a line, whose values are in r.line unless err says why they cannot
// be read. It returns nil, since the other requests of the line are read all the same.
func (r *Reader) countRequest(err error) error {
	r.counts.Read++
	if err == nil {
		err = r.handleRequest()
	}
	switch {
	case errors.Is(err, errNoRequest):
		r.counts.NoRequest++
	case err != nil:
		r.countBad(err)
	}
	return nil
}

// handleRequest passes on the request whose values are in r.line.
func (r *Reader) handleRequest() error {
	if !r.line.hasRequest(r.format.layout.requestSlots) {
		return errNoRequest
	}
	r.line.derive(r.format.layout.derived)
	err := r.line.readTime(r.format.layout.timeFormat)
	if err == nil && r.line.At > r.now {
		err = &LineError{r.line.Column(slotTime), fmt.Errorf("the time %q %w", r.line.values[slotTime], errFuture)}
	}
	if err == nil {
		err = r.handle(r.line)
	}
	return err
}

// countBad counts a line that cannot be read.
func (r *Reader) countBad(err error) {
	r.counts.Bad++
	if len(r.counts.FirstBad) == maxFirstBad {
		return
	}
	column := 0
	if at, ok := errors.AsType[*LineError](err); ok {
		column, err = at.Column, at.Err
	}
	r.counts.FirstBad = append(r.counts.FirstBad, BadLine{Line: r.counts.Rows, Column: column + 1, Reason: err.Error(), Excerpt: truncate(r.current)})
}
