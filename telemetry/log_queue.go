package telemetry

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A [LogQueue] holds at most the errors of a few thousand rules at once, beside the line that
// is being written.
const (
	queuedBytes = 1 << 20
	queuedLines = 1 << 12
)

// LogQueue stands between a logger and a writer that may be stuck, such as a pipe that
// nobody reads, or full, such as a file on a full disk. It drops and counts a line that
// does not fit into it or cannot be written. Logging never waits. All methods may be
// called concurrently.
type LogQueue struct {
	to      io.Writer
	dropped atomic.Uint64
	lines   chan []byte
	bytes   atomic.Int64 // of lines
	// closing is closed by Close, closed when Run has ended.
	closing, closed chan struct{}
}

// NewLogQueue returns a queue whose lines [LogQueue.Run] writes to w. One goroutine
// calls Run, once; one calls [LogQueue.Close], once.
func NewLogQueue(w io.Writer) *LogQueue {
	return &LogQueue{to: w, lines: make(chan []byte, queuedLines), closing: make(chan struct{}), closed: make(chan struct{})}
}

// Write queues a line, which is one call's, or drops it. It never waits nor fails.
func (q *LogQueue) Write(line []byte) (int, error) {
	size := int64(len(line))
	if q.bytes.Add(size) <= queuedBytes {
		select {
		case q.lines <- bytes.Clone(line):
			return len(line), nil
		default:
		}
	}
	q.bytes.Add(-size)
	q.dropped.Add(1)
	return len(line), nil
}

// Run writes lines as they are queued. After Close it writes the rest and returns.
func (q *LogQueue) Run() {
	defer close(q.closed)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
			continue
		case <-q.closing:
		}
		for {
			select {
			case line := <-q.lines:
				q.write(line)
			default:
				return
			}
		}
	}
}

// write writes a line. What a full disk or a closed pipe does not take is lost. It may
// take the next.
func (q *LogQueue) write(line []byte) {
	q.bytes.Add(-int64(len(line)))
	if _, err := q.to.Write(line); err != nil {
		q.dropped.Add(1)
	}
}

// Close ends Run and waits until it has written what was queued, patience at most.
// It reports whether Run ended: if not, the writer is stuck, and Run with it.
func (q *LogQueue) Close(patience time.Duration) bool {
	close(q.closing)
	select {
	case <-q.closed:
		return true
	case <-time.After(patience):
		return false
	}
}

// WatchLog counts the lines that q drops.
func (m *Metrics) WatchLog(q *LogQueue) {
	m.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_log_lines_dropped_total", Help: "Log lines that were lost because the log's reader did not keep up, or its disk was full.",
	}, func() float64 { return float64(q.dropped.Load()) }))
}
