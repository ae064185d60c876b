package simulate

import (
	"hash/fnv"
	"slices"
	"sync"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// source is where the descriptors of a line come from.
type source interface {
	describe(r *reading, l *accesslog.Line) error
}

// batch is what a chunk of lines came to.
type batch struct {
	arena []byte
	lines []waiting
	counts
	// waiting counts the requests that are not decided yet: with the last of them the batch
	// can be used again.
	waiting int
}

// counts are those of a chunk, and of all.
type counts struct {
	accesslog.Counts

	// outside counts the lines of another time than is wanted.
	outside int
	// first and last are the times of those outside; 0 without any.
	first, last int64
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
	c.Add(&of.Counts, log, row)
	c.outside += of.outside
	if of.last > 0 {
		c.span(of.first)
		c.span(of.last)
	}
	c.late += of.late
	c.computed += of.computed
	c.silent += of.silent
	c.otherDomain += of.otherDomain
	for why, n := range of.unknown {
		c.unknown[why] += n
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
	return freeBatches.Get().(*batch) //nolint:forcetypeassert // nothing else is there
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
const mostArena = 512 << 10

// reader is how lines are read. It is the same for all goroutines.
type reader struct {
	format *accesslog.Format
	source source
	// from, to and now are nanoseconds since 1970; lines of from until to count, and none
	// is later than now.
	from, to, now int64
	// shard is nil unless it tells the replicas.
	shard *accesslog.Expression
	// duration is the slot of how long requests took, -1 if no limit needs that.
	duration int
	// durationUnit is its unit in milliseconds.
	durationUnit float64
}

// reading reads chunks. One goroutine uses it.
type reading struct {
	*reader

	lines  *accesslog.Reader
	writer writer
	batch  *batch
	// arena is how long that of the last batch became.
	arena int
	// blamed counts the descriptors that are unknown.
	blamed int
}

func newReading(r *reader) *reading {
	g := &reading{reader: r}
	g.lines = r.format.NewReader(r.now, g.request)
	return g
}

// chunk reads a chunk.
func (r *reading) chunk(c accesslog.Chunk) *batch {
	b := newBatch()
	r.batch = b
	r.writer = writer{arena: slices.Grow(b.arena, r.arena)}
	b.Counts = r.lines.Read(c)
	b.arena, b.waiting = r.writer.arena, len(b.lines)
	r.arena = min(len(b.arena), mostArena)
	return b
}

// request takes in a request.
func (r *reading) request(l *accesslog.Line) error {
	if l.At < r.from || l.At >= r.to {
		r.batch.outside++
		r.batch.span(l.At)
		return nil
	}
	lasts, err := r.lasts(l)
	if err != nil {
		return err
	}
	start := r.writer.begin(l.Recorded(), r.shardOf(l), lasts)
	computed, other, blamed := r.batch.computed, r.batch.otherDomain, r.blamed
	if err := r.source.describe(r, l); err != nil {
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
	r.batch.lines = append(r.batch.lines, waiting{at: l.At, offset: uint32(start), batch: r.batch})
	return nil
}

// shardOf returns what tells the replica of the request: a hash, noShard where nothing
// does.
func (r *reading) shardOf(l *accesslog.Line) uint32 {
	if r.shard == nil {
		return noShard
	}
	value, s := r.shard.Value(l)
	if s != accesslog.Present {
		return noShard
	}
	h := fnv.New32a()
	_, _ = h.Write(value) // never fails
	return max(h.Sum32(), 1)
}

// unknown counts a descriptor that cannot be computed.
func (r *reading) unknown(why string) {
	r.blamed++
	r.batch.unknown[why]++
}
