package simulate

import (
	"slices"
	"sync"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// source determines the descriptors of a line.
type source interface {
	appendCalls(r *worker, l *accesslog.Line) error
}

// batch contains the requests of a chunk.
type batch struct {
	arena    []byte
	requests []queuedRequest
	rows     []uint32 // rows of the requests in the chunk, from 1
	counts
	// pending counts the undecided requests. At 0 the batch is recycled.
	pending int
}

// counts has the counts of a chunk or of all logs.
type counts struct {
	accesslog.Counts

	// outsideRange counts the lines outside the time range.
	outsideRange int
	// first and last are the earliest and the latest time of those lines, or 0.
	first, last int64
	// late counts the requests that arrived too late to be sorted.
	late int
	// computed counts the known descriptors, and unknown the others by reason.
	computed int
	unknown  map[string]int
	// withoutDescriptor counts the lines without a descriptor.
	withoutDescriptor int
	// otherDomain counts the calls to unselected domains.
	otherDomain int
}

func newCounts() counts { return counts{unknown: map[string]int{}} }

// add adds the counts of a chunk that starts after the given row of a log.
func (c *counts) add(of *counts, log string, row int) {
	c.Add(&of.Counts, log, row)
	c.outsideRange += of.outsideRange
	if of.last > 0 {
		c.extendRange(of.first)
		c.extendRange(of.last)
	}
	c.late += of.late
	c.computed += of.computed
	c.withoutDescriptor += of.withoutDescriptor
	c.otherDomain += of.otherDomain
	for why, n := range of.unknown {
		c.unknown[why] += n
	}
}

// extendRange adds the time of a line outside the range.
func (c *counts) extendRange(at int64) {
	if c.last == 0 {
		c.first = at
	}
	c.first = min(c.first, at)
	c.last = max(c.last, at)
}

// batchPool recycles batches and their arenas.
var batchPool = sync.Pool{New: func() any { return &batch{counts: newCounts()} }}

func newBatch() *batch {
	return batchPool.Get().(*batch) //nolint:forcetypeassert // nothing else is there
}

func (b *batch) free() {
	if cap(b.arena) > maxReusedArena {
		return
	}
	clear(b.unknown)
	*b = batch{arena: b.arena[:0], requests: b.requests[:0], rows: b.rows[:0], counts: counts{unknown: b.unknown}}
	batchPool.Put(b)
}

// maxReusedArena is the maximum size of a recycled arena. A chunk of lines with long metadata
// rarely needs more.
const maxReusedArena = 512 << 10

// readPlan determines how to read lines. All goroutines share it.
type readPlan struct {
	format *accesslog.Format
	source source
	// from, to and now are nanoseconds since 1970. Requests in [from, to) are simulated. A request
	// after now is an error.
	from, to, now int64
	// duration is the slot of the request's duration, or -1 if no limit needs it.
	duration int
	// durationUnit is its unit in milliseconds.
	durationUnit float64
}

// worker parses chunks. It is not safe for concurrent use.
type worker struct {
	*readPlan

	reader *accesslog.Reader
	writer writer
	batch  *batch
	// lastArena is the length of the last batch's arena.
	lastArena int
	// unknowns counts the unknown descriptors.
	unknowns int
}

func newWorker(r *readPlan) *worker {
	g := &worker{readPlan: r}
	g.reader = r.format.NewReader(r.now, g.addRequest)
	return g
}

func (r *worker) readChunk(c accesslog.Chunk) *batch {
	b := newBatch()
	r.batch = b
	r.writer = writer{arena: slices.Grow(b.arena, r.lastArena)}
	b.Counts = r.reader.Read(c)
	b.arena = r.writer.arena
	b.pending = len(b.requests)
	r.lastArena = min(len(b.arena), maxReusedArena)
	return b
}

// addRequest appends the record of a request.
func (r *worker) addRequest(l *accesslog.Line) error {
	if l.At < r.from || l.At >= r.to {
		r.batch.outsideRange++
		r.batch.extendRange(l.At)
		return nil
	}
	duration, err := r.durationOf(l)
	if err != nil {
		return err
	}
	start := r.writer.beginRecord(l.Recorded(), duration)
	computed := r.batch.computed
	other := r.batch.otherDomain
	unknowns := r.unknowns
	if err := r.source.appendCalls(r, l); err != nil {
		r.writer.arena = r.writer.arena[:start]
		r.batch.computed = computed
		r.batch.otherDomain = other
		return err
	}
	if r.writer.arena[r.writer.calls] == 0 {
		// The request made no call, or its descriptors are unknown.
		r.writer.arena = r.writer.arena[:start]
		if r.unknowns == unknowns {
			r.batch.withoutDescriptor++
		}
		return nil
	}
	r.batch.rows = append(r.batch.rows, uint32(r.reader.Row()))
	r.batch.requests = append(r.batch.requests, queuedRequest{at: l.At, offset: uint32(start), batch: r.batch})
	return nil
}

// addUnknown counts an unknown descriptor.
func (r *worker) addUnknown(why string) {
	r.unknowns++
	r.batch.unknown[why]++
}
