package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
)

// format reads lines of one kind.
type format interface {
	// has reports whether lines have a field, and fields lists those that they have.
	has(name string) bool
	fields() []string
	// use tells the format which fields are wanted.
	use(l *layout) error
	// read fills in the values of a line.
	read(line []byte, v *values) error
}

// source is where the descriptors of a line come from.
type source interface {
	describe(r *reading) error
}

// batch is what a chunk of lines came to.
type batch struct {
	arena []byte
	lines []waiting
	counts
	// rows counts all lines, to tell the place of those of the next chunk.
	rows int
	// waiting counts the requests that are not decided yet: with the last of them the batch
	// can be used again.
	waiting int
}

// counts are those of a chunk, and of all.
type counts struct {
	// read counts the lines, empty ones left out, and outside those of another time than
	// is wanted.
	read, outside int
	// first and last are the times of those outside; 0 without any.
	first, last int64
	// bad counts the lines that cannot be read, and worst has the first of them.
	bad   int
	worst []BadLine
	// late counts the requests that came too late to be put into order.
	late int
	// computed counts the descriptors that are known, and unknown, by reason, the others.
	computed int
	unknown  map[string]int
	// silent counts the lines that lead to no descriptor.
	silent int
	// otherDomain counts the calls that go to another domain than is looked at.
	otherDomain int
}

func newCounts() counts { return counts{unknown: map[string]int{}} }

// add adds those of a chunk, before which row lines of the log stand.
func (c *counts) add(of *counts, log string, row int) {
	c.read += of.read
	c.outside += of.outside
	if of.last > 0 {
		c.span(of.first)
		c.span(of.last)
	}
	c.bad += of.bad
	c.late += of.late
	c.computed += of.computed
	c.silent += of.silent
	c.otherDomain += of.otherDomain
	for why, n := range of.unknown {
		c.unknown[why] += n
	}
	for _, bad := range of.worst[:min(len(of.worst), shownBad-len(c.worst))] {
		bad.Log, bad.Line = log, row+bad.Line
		c.worst = append(c.worst, bad)
	}
}

// span takes in the time of a line that is outside.
func (c *counts) span(at int64) {
	if c.last == 0 {
		c.first = at
	}
	c.first, c.last = min(c.first, at), max(c.last, at)
}

// freeBatches is memory of batches to be used again. The arena of one that was for long
// lines is as large as those were, and not much of all.
var freeBatches = sync.Pool{New: func() any { return &batch{counts: newCounts()} }}

func newBatch() *batch {
	return freeBatches.Get().(*batch) //nolint:errcheck,forcetypeassert // nothing else is there
}

// free gives a batch's memory back.
func (b *batch) free() {
	if cap(b.arena) > mostArena {
		return
	}
	clear(b.unknown)
	*b = batch{arena: b.arena[:0], lines: b.lines[:0], counts: counts{unknown: b.unknown}}
	freeBatches.Put(b)
}

// mostArena is the largest arena that is used again. A chunk of lines with long metadata is
// hardly longer.
const mostArena = 2 * chunkBytes

// BadLine is a line that could not be read.
type BadLine struct {
	Log    string `json:"log"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
	Begin  string `json:"begin"`
}

func (b BadLine) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %q", b.Log, b.Line, b.Column, b.Reason, b.Begin)
}

// shownBad is how many bad lines are shown.
const shownBad = 5

// reader is how lines are read. It is the same for all goroutines.
type reader struct {
	format format
	source source
	layout *layout
	// from, to and now are nanoseconds since 1970; lines of from until to count, and none
	// is later than now.
	from, to, now int64
	longest       int
	// shard is nil unless it tells the replicas.
	shard *Expression
}

// reading reads chunks. One goroutine uses it.
type reading struct {
	*reader

	// several is the format, if it has several requests in a line.
	several severalFormat
	values  *values
	writer  writer
	batch   *batch
	line    []byte
	row     int
	// arena is how long that of the last batch became.
	arena int
	// blamed counts the descriptors that are unknown.
	blamed int
}

func newReading(r *reader) *reading {
	several, _ := r.format.(severalFormat)
	return &reading{reader: r, several: several, values: newValues(r.layout)}
}

var (
	errNoTimeField = errors.New("has no time")
	errFuture      = errors.New("is in the future")
	errTooLong     = errors.New("is longer than 1 MiB")
)

// chunk reads a chunk.
func (r *reading) chunk(c chunk) *batch {
	b := newBatch()
	r.batch = b
	r.writer = writer{arena: slices.Grow(b.arena, r.arena)}
	if c.tooLong {
		b.rows, b.read = 1, 1
		r.row, r.line = 1, nil
		r.bad(&lineError{0, errTooLong})
		return b
	}
	rest := c.bytes
	for len(rest) > 0 {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		b.rows++
		r.row = b.rows
		if len(line) == 0 {
			continue
		}
		b.read++
		r.one(line)
	}
	b.arena, b.waiting = r.writer.arena, len(b.lines)
	r.arena = min(len(b.arena), mostArena)
	return b
}

// one reads a line.
func (r *reading) one(line []byte) {
	r.line = line
	if len(line) > r.longest {
		r.bad(&lineError{0, errTooLong})
		return
	}
	r.values.clear()
	if r.several != nil {
		r.batch.read-- // its requests count
		var inner error
		err := r.several.readAll(line, r.values, func() error {
			r.batch.read++
			inner = r.request()
			return inner
		})
		if err != nil {
			if inner == nil {
				r.batch.read++
			}
			r.bad(err)
		}
		return
	}
	err := r.format.read(line, r.values)
	if err == nil {
		err = r.request()
	}
	if errors.Is(err, errHeader) {
		r.batch.read--
	} else if err != nil {
		r.bad(err)
	}
}

// severalFormat has several requests in a line.
type severalFormat interface {
	readAll(line []byte, v *values, request func() error) error
}

// request takes in the request whose values are there.
func (r *reading) request() error {
	v := r.values
	at := v.of[slotTime]
	switch {
	case at == nil && v.isUnsure(slotTime):
		return &lineError{0, errAmbiguous}
	case at == nil:
		return &lineError{0, errNoTimeField}
	}
	t, err := r.layout.clock(at)
	switch {
	case err != nil:
		return &lineError{v.columns[slotTime], fmt.Errorf("%q %w", shorten(at), err)}
	case t > r.now:
		return &lineError{v.columns[slotTime], fmt.Errorf("the time %q %w", at, errFuture)}
	case t < r.from || t >= r.to:
		r.batch.outside++
		r.batch.span(t)
		return nil
	}
	start := r.writer.begin(recordedAs(v), r.shardOf())
	computed, other, blamed := r.batch.computed, r.batch.otherDomain, r.blamed
	if err := r.source.describe(r); err != nil {
		r.writer.arena = r.writer.arena[:start]
		r.batch.computed, r.batch.otherDomain = computed, other
		return err
	}
	if r.writer.arena[r.writer.calls] == 0 {
		// Nothing is asked, or it is not known what is.
		r.writer.arena = r.writer.arena[:start]
		if r.blamed == blamed {
			r.batch.silent++
		}
		return nil
	}
	r.batch.lines = append(r.batch.lines, waiting{at: t, offset: uint32(start), batch: r.batch}) //nolint:gosec // no chunk makes 4 GiB
	return nil
}

// shardOf returns what tells the replica of the request: a hash, noShard where nothing
// does.
func (r *reading) shardOf() uint32 {
	if r.shard == nil {
		return noShard
	}
	var s state
	if r.values.made, s = r.shard.appendTo(r.values.made[:0], r.values); s != present {
		return noShard
	}
	h := fnv.New32a()
	_, _ = h.Write(r.values.made) // never fails
	return max(h.Sum32(), 1)
}

// recordedAs says what the log says became of the request: Envoy's flag for what a rate
// limit denied, or the status for that.
func recordedAs(v *values) recorded {
	status, flags := v.of[slotStatus], v.of[slotFlags]
	switch {
	case len(status) == 3 && string(status) == "429", hasFlag(flags):
		return deniedThen
	case status == nil && flags == nil:
		return notRecorded
	default:
		return admittedThen
	}
}

// hasFlag reports whether flags such as RL,UF have RL, or its long name.
func hasFlag(flags []byte) bool {
	for len(flags) > 1 {
		i := bytes.IndexByte(flags, ',')
		flag := flags
		if i >= 0 {
			flag, flags = flags[:i], flags[i+1:]
		} else {
			flags = nil
		}
		if string(flag) == "RL" || string(flag) == "RateLimited" {
			return true
		}
	}
	return false
}

// unknown counts a descriptor that cannot be computed.
func (r *reading) unknown(why string) {
	r.blamed++
	r.batch.unknown[why]++
}

// bad counts a line that cannot be read.
func (r *reading) bad(err error) {
	b := r.batch
	b.bad++
	if len(b.worst) == shownBad {
		return
	}
	column := 0
	if at, ok := errors.AsType[*lineError](err); ok {
		column, err = at.column, at.why
	}
	b.worst = append(b.worst, BadLine{Line: r.row, Column: column + 1, Reason: err.Error(), Begin: shorten(r.line)})
}

// shorten cuts what is shown of a line.
func shorten(b []byte) string {
	const most = 40
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most]) + "..."
}
