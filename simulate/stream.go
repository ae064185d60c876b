package simulate

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// job is a chunk to be parsed by a worker. done is closed when batch is set.
type job struct {
	chunk accesslog.Chunk
	batch *batch
	done  chan struct{}
}

// stream yields the requests of one log in order of time.
type stream struct {
	name    string
	jobs    chan *job
	reorder *reorder
	rows    int
	ended   bool
	// newest is the time of the newest request, and newestRow its row; 0 before the first.
	newest    int64
	newestRow int
	// ahead is the line because of which a request came too late, or nil.
	ahead *report.AheadLine
	// err is the error of reading the log, set before jobs is closed.
	err     error
	onBatch func(s *stream, b *batch)

	head queuedRequest
}

// advance sets head to the next request. It returns false at the end of the log.
func (s *stream) advance(ctx context.Context) (bool, error) {
	for {
		if w, ok := s.reorder.pop(); ok {
			s.head = w
			return true, nil
		}
		if s.ended {
			if !s.reorder.flush() {
				return false, nil
			}
			continue
		}
		j, ok := <-s.jobs
		if !ok {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if s.err != nil {
				return false, fmt.Errorf("%s: %w", s.name, s.err)
			}
			s.ended = true
			continue
		}
		select {
		case <-j.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		for i, w := range j.batch.requests {
			if !s.reorder.add(w) {
				if j.batch.late++; s.ahead == nil {
					s.ahead = &report.AheadLine{
						Log: s.name, Line: s.newestRow, Seconds: time.Duration(s.newest - w.at).Seconds(),
					}
				}
			} else if s.newestRow == 0 || w.at > s.newest {
				s.newest = w.at
				s.newestRow = s.rows + int(j.batch.rows[i])
			}
		}
		s.onBatch(s, j.batch)
		s.rows += j.batch.Rows
		if j.batch.pending -= j.batch.late; j.batch.pending == 0 {
			j.batch.free()
		}
	}
}

// countingReader reports the number of bytes of each read.
type countingReader struct {
	io.Reader

	count func(n int)
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.count(n)
	return n, err
}

// pipeline reads logs with one goroutine per log and a pool of workers that parse lines.
type pipeline struct {
	streams []*stream
	work    chan *job
	wait    sync.WaitGroup
	stop    context.CancelFunc
}

// startPipeline starts reading. The caller must call close.
func startPipeline(
	ctx context.Context, o *Options, r *readPlan, onBatch func(*stream, *batch), progress func(n int),
) *pipeline {
	ctx, stop := context.WithCancel(ctx)
	p := &pipeline{work: make(chan *job), stop: stop}
	for _, in := range o.Logs {
		s := &stream{
			name: in.Name, jobs: make(chan *job, max(1, 2*o.Workers/len(o.Logs))), reorder: newReorder(int64(o.Reorder)),
			onBatch: onBatch,
		}
		p.streams = append(p.streams, s)
		p.wait.Go(func() {
			defer close(s.jobs)
			s.err = p.readLog(ctx, in, s.jobs, progress)
		})
	}
	for range o.Workers {
		p.wait.Go(func() {
			reading := newWorker(r)
			for {
				select {
				case j := <-p.work:
					j.batch = reading.readChunk(j.chunk)
					j.chunk.Free()
					close(j.done)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return p
}

// readLog sends the chunks of a log to the workers, and in order to jobs.
func (p *pipeline) readLog(ctx context.Context, in accesslog.Log, jobs chan<- *job, progress func(n int)) error {
	f, err := in.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	return accesslog.ReadChunks(countingReader{f, progress}, func(c accesslog.Chunk) error {
		j := &job{chunk: c, done: make(chan struct{})}
		select {
		case jobs <- j:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case p.work <- j:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// close stops all goroutines and waits for them.
func (p *pipeline) close() {
	p.stop()
	p.wait.Wait()
}

// eachRequest calls use with the requests of all logs in order of time. If times are equal, the
// first log's request comes first.
func (p *pipeline) eachRequest(ctx context.Context, use func(w queuedRequest)) error {
	var open []*stream
	for _, s := range p.streams {
		ok, err := s.advance(ctx)
		if err != nil {
			return err
		}
		if ok {
			open = append(open, s)
		}
	}
	for n := 0; len(open) > 0; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		least := 0
		for i := 1; i < len(open); i++ {
			if open[i].head.at < open[least].head.at {
				least = i
			}
		}
		s := open[least]
		use(s.head)
		if b := s.head.batch; b.pending > 1 {
			b.pending--
		} else {
			b.free()
		}
		ok, err := s.advance(ctx)
		if err != nil {
			return err
		}
		if !ok {
			open = append(open[:least], open[least+1:]...)
		}
	}
	return nil
}
