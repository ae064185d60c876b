package telemetry

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds on a [LogQueue], in addition to the line that is being written. It has space for the
// errors of a few thousand rules.
const (
	queuedBytes = 1 << 20
	queuedLines = 1 << 12
)

// LogQueue is a writer for a logger. It passes lines on to another writer that may block, such as a
// pipe without a reader, or fail, such as a file on a full disk. Lines that do not fit into the
// queue or cannot be written are dropped and counted. Logging never blocks. All methods may be
// called concurrently.
type LogQueue struct {
	to      io.Writer
	dropped atomic.Uint64
	lines   chan []byte
	bytes   atomic.Int64 // queued bytes
	// closing is closed by Close, closed when Run returns.
	closing, closed chan struct{}
}

// NewLogQueue returns a queue whose lines [LogQueue.Run] writes to w. Run and [LogQueue.Close] must
// each be called once.
func NewLogQueue(w io.Writer) *LogQueue {
	return &LogQueue{
		to: w, lines: make(chan []byte, queuedLines), closing: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Write queues a line, or drops it. Each call is one line. It never blocks or fails.
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

// Run writes queued lines until Close is called, and then the rest of the queue.
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

// write writes a line. A line that a full disk or a closed pipe does not accept is lost; the next
// one may be accepted.
func (q *LogQueue) write(line []byte) {
	q.bytes.Add(-int64(len(line)))
	if _, err := q.to.Write(line); err != nil {
		q.dropped.Add(1)
	}
}

// Close ends Run and waits, at most for timeout, until Run has written the queued lines. It reports
// whether Run returned; if not, the writer is blocked.
func (q *LogQueue) Close(timeout time.Duration) bool {
	close(q.closing)
	select {
	case <-q.closed:
		return true
	case <-time.After(timeout):
		return false
	}
}

// WatchLog registers the metric of the lines that q drops.
func (m *Metrics) WatchLog(q *LogQueue) {
	m.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_log_lines_dropped_total", Help: "Log lines that were dropped because the reader of the log did not keep up, or its disk was full.",
	}, func() float64 { return float64(q.dropped.Load()) }))
}
