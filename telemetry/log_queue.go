package telemetry

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// queuedBytes is what a [LogQueue] holds at most beside what is being written: the
// errors of a few thousand rules at once.
const queuedBytes = 1 << 20

// LogQueue stands between a logger and a writer that may be stuck, such as a pipe that
// nobody reads, or full, such as a file on a full disk. It drops and counts a line that
// does not fit into it or cannot be written. Logging never waits. All methods may be
// called concurrently.
type LogQueue struct {
	to      io.Writer
	dropped atomic.Uint64
	// wake holds something if queued does.
	wake chan struct{}
	// closing is closed by Close, closed when Run has ended.
	closing, closed chan struct{}

	mu     sync.Mutex // held for a copy, never while something is written
	queued lines
}

// lines are bytes, and where in them each line ends.
type lines struct {
	text []byte
	ends []int
}

// NewLogQueue returns a queue whose lines [LogQueue.Run] writes to w. One goroutine
// calls Run, once; one calls [LogQueue.Close], once.
func NewLogQueue(w io.Writer) *LogQueue {
	return &LogQueue{to: w, wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{})}
}

// Write queues a line, which is one call's, or drops it. It never waits nor fails.
func (q *LogQueue) Write(line []byte) (int, error) {
	if !q.queue(line) {
		q.dropped.Add(1)
		return len(line), nil
	}
	select {
	case q.wake <- struct{}{}:
	default: // Run will come
	}
	return len(line), nil
}

func (q *LogQueue) queue(line []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued.text)+len(line) > queuedBytes {
		return false
	}
	q.queued.text = append(q.queued.text, line...)
	q.queued.ends = append(q.queued.ends, len(q.queued.text))
	return true
}

// Run writes lines as they are queued. After Close it writes the rest and returns.
func (q *LogQueue) Run() {
	defer close(q.closed)
	var written lines // whose memory is used again
	for open := true; open; {
		select {
		case <-q.wake:
		case <-q.closing:
			open = false
		}
		written = q.take(written)
		start := 0
		for _, end := range written.ends {
			// What a full disk or a closed pipe does not take is lost. It may take the next.
			if _, err := q.to.Write(written.text[start:end]); err != nil {
				q.dropped.Add(1)
			}
			start = end
		}
	}
}

// take returns what is queued, and queues in empty's memory from now on.
func (q *LogQueue) take(empty lines) lines {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.queued
	q.queued = lines{text: empty.text[:0], ends: empty.ends[:0]}
	return all
}

// Close ends Run and waits until it has written what was queued, patience at most.
// It reports whether Run ended: if not, the writer is stuck, and Run with it.
func (q *LogQueue) Close(patience time.Duration) bool {
	close(q.closing)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-q.closed:
		return true
	case <-timer.C:
		return false
	}
}

// WatchLog counts the lines that q drops.
func (m *Metrics) WatchLog(q *LogQueue) {
	m.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_log_lines_dropped_total", Help: "Log lines that were lost because the log's reader did not keep up, or its disk was full.",
	}, func() float64 { return float64(q.dropped.Load()) }))
}
