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
	// Begin is what the line begins with.
	Begin string `json:"begin"`
}

// String writes a bad line for people.
func (b BadLine) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %q", b.Log, b.Line, b.Column, b.Reason, b.Begin)
}

// Counts are those of lines.
type Counts struct {
	// Rows counts all lines, and Read those of them that are not empty. Of a line with
	// several requests Read counts these.
	Rows, Read int
	// NoRequest counts the lines about something else than a request.
	NoRequest int
	// Bad counts the lines that cannot be read, and Worst has the first of them.
	Bad   int
	Worst []BadLine
}

// shownBad is how many bad lines are kept.
const shownBad = 5

// Add adds the counts of lines of a log that stand below row other ones.
func (c *Counts) Add(of *Counts, log string, row int) {
	c.Rows += of.Rows
	c.Read += of.Read
	c.NoRequest += of.NoRequest
	c.Bad += of.Bad
	for _, bad := range of.Worst[:min(len(of.Worst), shownBad-len(c.Worst))] {
		bad.Log, bad.Line = log, row+bad.Line
		c.Worst = append(c.Worst, bad)
	}
}

// Reader reads chunks of logs. One goroutine uses it.
type Reader struct {
	format *Format
	now    int64
	// longest is the longest line, in bytes.
	longest int
	use     func(*Line) error
	// each is the method request.
	each func(error) error

	line   *Line
	text   []byte
	counts Counts
}

// NewReader returns a reader of a settled format. It calls use with each request whose time
// can be read and is not after now, in nanoseconds since 1970. An error of use makes the
// line a bad one.
func (f *Format) NewReader(now int64, use func(*Line) error) *Reader {
	r := &Reader{format: f, now: now, longest: f.lines.about().longest, use: use, line: newLine(f.layout)}
	r.each = r.request
	return r
}

var (
	newline, carriageReturn = []byte("\n"), []byte("\r")

	errFuture = errors.New("is in the future")
)

// errTooLong returns the error of a line that is longer than the longest one.
func errTooLong(longest int) error { return fmt.Errorf("is longer than %d MiB", longest>>20) }

// Chunks reads a log in chunks, to each of which it gives memory of its own, and calls yield
// with them. It returns an error of the log itself, or that of yield.
func (f *Format) Chunks(in io.Reader, yield func(Chunk) error) error {
	if _, ok := f.lines.(*w3cFormat); ok {
		yield = rememberComments(yield)
	}
	return chunks(in, f.lines.about().longest, yield)
}

// Read reads a chunk and returns what is to be counted of it.
func (r *Reader) Read(c Chunk) Counts {
	r.counts = Counts{}
	if c.tooLong {
		r.counts.Rows, r.counts.Read, r.text = 1, 1, nil
		r.bad(&LineError{0, errTooLong(r.longest)})
		return r.counts
	}
	r.line.part, r.line.day = nil, nil
	if f, ok := r.format.lines.(*w3cFormat); ok {
		for _, line := range c.comments {
			f.comment(r.line, line)
		}
	}
	for rest := c.Bytes; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, newline)
		r.counts.Rows++
		if line = bytes.TrimSuffix(line, carriageReturn); len(line) > 0 {
			r.one(line)
		}
	}
	return r.counts
}

// one reads a line.
func (r *Reader) one(line []byte) {
	r.text = line
	if len(line) > r.longest {
		r.counts.Read++
		r.bad(&LineError{0, errTooLong(r.longest)})
		return
	}
	r.line.clear()
	if err := r.format.lines.read(line, r.line, r.each); err != nil && !errors.Is(err, errHeader) {
		r.counts.Read++
		r.bad(err)
	}
}

// request counts one request of a line, whose values are in r.line unless err says why they cannot
// be read. It returns nil, since the other requests of the line are read all the same.
func (r *Reader) request(err error) error {
	r.counts.Read++
	if err == nil {
		err = r.deliver()
	}
	switch {
	case errors.Is(err, errNoRequest):
		r.counts.NoRequest++
	case err != nil:
		r.bad(err)
	}
	return nil
}

// deliver passes on the request whose values are in r.line.
func (r *Reader) deliver() error {
	if !r.line.hasRequest(r.format.layout.request) {
		return errNoRequest
	}
	r.line.cut(r.format.layout.parts)
	err := r.line.readTime(r.format.layout.clock)
	if err == nil && r.line.At > r.now {
		err = &LineError{r.line.Column(slotTime), fmt.Errorf("the time %q %w", r.line.of[slotTime], errFuture)}
	}
	if err == nil {
		err = r.use(r.line)
	}
	return err
}

// bad counts a line that cannot be read.
func (r *Reader) bad(err error) {
	r.counts.Bad++
	if len(r.counts.Worst) == shownBad {
		return
	}
	column := 0
	if at, ok := errors.AsType[*LineError](err); ok {
		column, err = at.Column, at.Why
	}
	r.counts.Worst = append(r.counts.Worst, BadLine{Line: r.counts.Rows, Column: column + 1, Reason: err.Error(), Begin: shorten(r.text)})
}
