package simulate

import (
	"hash/fnv"
	"slices"
	"sync"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// source is where the descriptors of a line come from.
type source interface {
	appendCalls(r *worker, l *accesslog.Line) error
}

// batch is what a chunk of lines came to.
type batch struct {
	arena    []byte
	requests []queuedRequest
	counts
	// pending counts the requests that are not decided yet: with the last of them the batch
	// can be used again.
	pending int
}

// counts are those of a chunk, and of all.
type counts struct {
	accesslog.Counts

	// outsideRange counts the lines of another time than is wanted.
	outsideRange int
	// first and last are the times of those outside; 0 without any.
	first, last int64
	// late counts the requests that came too late to be put into order.
	late int
	// computed counts the descriptors that are known, and unknown, by reason, the others.
	computed int
	unknown  map[string]int
	// withoutDescriptor counts the lines that lead to no descriptor.
	withoutDescriptor int
	// otherDomain counts the calls that go to another domain than is looked at.
	otherDomain int
}

func newCounts() counts { return counts{unknown: map[string]int{}} }

// add adds those of a chunk, before which row lines of the log stand.
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

// extendRange takes in the time of a line that is outside.
func (c *counts) extendRange(at int64) {
	if c.last == 0 {
		c.first = at
	}
	c.first, c.last = min(c.first, at), max(c.last, at)
}

// batchPool is memory of batches to be used again. The arena of one that was for long
// lines is as large as those were, and not much of all.
var batchPool = sync.Pool{New: func() any { return &batch{counts: newCounts()} }}

func newBatch() *batch {
	return batchPool.Get().(*batch) //nolint:forcetypeassert // nothing else is there
}

// free gives a batch's memory back.
func (b *batch) free() {
	if cap(b.arena) > maxReusedArena {
		return
	}
	clear(b.unknown)
	*b = batch{arena: b.arena[:0], requests: b.requests[:0], counts: counts{unknown: b.unknown}}
	batchPool.Put(b)
}

// maxReusedArena is the largest arena that is used again. A chunk of lines with long metadata is
// hardly longer.
const maxReusedArena = 512 << 10

// readPlan is how lines are read. It is the same for all goroutines.
type readPlan struct {
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

// worker reads chunks. One goroutine uses it.
type worker struct {
	*readPlan

	reader *accesslog.Reader
	writer writer
	batch  *batch
	// lastArena is how long that of the last batch became.
	lastArena int
	// unknowns counts the descriptors that are unknown.
	unknowns int
}

func newWorker(r *readPlan) *worker {
	g := &worker{readPlan: r}
	g.reader = r.format.NewReader(r.now, g.addRequest)
	return g
}

// readChunk reads a chunk.
func (r *worker) readChunk(c accesslog.Chunk) *batch {
	b := newBatch()
	r.batch = b
	r.writer = writer{arena: slices.Grow(b.arena, r.lastArena)}
	b.Counts = r.reader.Read(c)
	b.arena, b.pending = r.writer.arena, len(b.requests)
	r.lastArena = min(len(b.arena), maxReusedArena)
	return b
}

// addRequest takes in a request.
func (r *worker) addRequest(l *accesslog.Line) error {
	if l.At < r.from || l.At >= r.to {
		r.batch.outsideRange++
		r.batch.extendRange(l.At)
		return nil
	}
	lasts, err := r.durationOf(l)
	if err != nil {
		return err
	}
	start := r.writer.beginRecord(l.Recorded(), r.shardHash(l), lasts)
	computed, other, blamed := r.batch.computed, r.batch.otherDomain, r.unknowns
	if err := r.source.appendCalls(r, l); err != nil {
		r.writer.arena = r.writer.arena[:start]
		r.batch.computed, r.batch.otherDomain = computed, other
		return err
	}
	if r.writer.arena[r.writer.calls] == 0 {
		// Nothing is asked, or it is not known what is.
		r.writer.arena = r.writer.arena[:start]
		if r.unknowns == blamed {
			r.batch.withoutDescriptor++
		}
		return nil
	}
	r.batch.requests = append(r.batch.requests, queuedRequest{at: l.At, offset: uint32(start), batch: r.batch})
	return nil
}

// shardHash returns what tells the replica of the request: a hash, noShard where nothing
// does.
func (r *worker) shardHash(l *accesslog.Line) uint32 {
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

// addUnknown counts a descriptor that cannot be computed.
func (r *worker) addUnknown(why string) {
	r.unknowns++
	r.batch.unknown[why]++
}
