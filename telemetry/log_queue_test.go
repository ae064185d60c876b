package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestUnreadLogDoesNotBlock logs more to a pipe without a reader than the pipe and the queue can
// contain, and then reads it. All lines that were not dropped arrive, and Close is bounded.
func TestUnreadLogDoesNotBlock(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	q := NewLogQueue(w)
	go q.Run()
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.WatchLog(q)
	logger, err := NewLogger(q, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	const lines = 20_000
	padding := strings.Repeat("x", 200)
	for i := range lines {
		logger.Info(fmt.Sprintf("line %05d %s", i, padding)) // must not block
	}
	if q.Close(time.Millisecond) {
		t.Error("Close = true although the pipe is full")
	}
	lost := int(q.dropped.Load())
	if lost < lines/2 {
		t.Errorf("%d of %d lines are dropped, want most, since the pipe is full", lost, lines)
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(fmt.Sprintf(
		"# HELP %[1]s %[2]s\n# TYPE %[1]s counter\n%[1]s %[3]d\n", "sluice_log_lines_dropped_total",
		"Log lines that were dropped because the reader of the log did not keep up, or its disk was full.", lost,
	)), "sluice_log_lines_dropped_total"); err != nil {
		t.Error(err)
	}

	// Once the pipe is read, Run writes the rest and returns.
	read := make(chan []byte)
	go func() {
		all, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		read <- all
	}()
	<-q.closed
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	got := bytes.Count(<-read, []byte("\n"))
	if got+lost != lines {
		t.Errorf("%d lines arrived and %d were dropped, want a sum of %d", got, lost, lines)
	}
}

// TestLogQueueByteBound queues ten large lines.
func TestLogQueueByteBound(t *testing.T) {
	q := NewLogQueue(io.Discard) // Run is not called
	line := make([]byte, queuedBytes/4)
	for range 10 {
		if n, err := q.Write(line); n != len(line) || err != nil {
			t.Errorf("Write = %d, %v, want %d, nil", n, err, len(line))
		}
	}
	if queued, lost := len(q.lines), q.dropped.Load(); queued != 4 || lost != 6 {
		t.Errorf("%d lines are queued and %d dropped, want 4 and 6", queued, lost)
	}
}

// failingWriter returns an error while full is set, like a full disk.
type failingWriter struct {
	full bool
	got  []string
}

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.full {
		return 0, errors.New("no space left on device")
	}
	f.got = append(f.got, string(p))
	return len(p), nil
}

// TestLogContinuesAfterFullDisk has a disk that is full for a while: the lines of that time are
// dropped.
func TestLogContinuesAfterFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failingWriter{}
		q := NewLogQueue(disk)
		go q.Run()
		buffer := []byte("1")
		write := func(line byte) {
			buffer[0] = line // zap also reuses its buffers
			if _, err := q.Write(buffer); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		write('1')
		disk.full = true
		write('2')
		write('3')
		disk.full = false
		write('4')
		if !q.Close(time.Hour) {
			t.Error("Close = false, want all lines written")
		}
		if got := strings.Join(disk.got, ""); got != "14" || q.dropped.Load() != 2 {
			t.Errorf("%q is written and %d lines are dropped, want 14 and 2", got, q.dropped.Load())
		}
	})
}

// TestCloseWritesQueuedLines calls Close while lines are queued.
func TestCloseWritesQueuedLines(t *testing.T) {
	var out bytes.Buffer
	q := NewLogQueue(&out)
	for range 100 {
		if _, err := q.Write([]byte("line\n")); err != nil {
			t.Error(err)
		}
	}
	go q.Run()
	if !q.Close(time.Hour) || strings.Count(out.String(), "line\n") != 100 {
		t.Errorf("%q is written, want 100 lines", out.String())
	}
}
