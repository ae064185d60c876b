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

// TestALogThatNobodyReadsHoldsNobody logs to a pipe whose reader sleeps, until far
// more is logged than pipe and queue hold, and then wakes it: what was not dropped
// comes, in order, and the end is bounded.
func TestALogThatNobodyReadsHoldsNobody(t *testing.T) {
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
		logger.Info(fmt.Sprintf("line %05d %s", i, padding)) // would wait for ever
	}
	if q.Close(time.Millisecond) {
		t.Error("Close reports that all was written, want that the pipe is full")
	}
	lost := int(q.dropped.Load())
	if lost < lines/2 {
		t.Errorf("%d lines of %d are dropped, want most: the pipe was to be full", lost, lines)
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(fmt.Sprintf(
		"# HELP %[1]s %[2]s\n# TYPE %[1]s counter\n%[1]s %[3]d\n", "sluice_log_lines_dropped_total",
		"Log lines that were dropped because the reader of the log did not keep up, or its disk was full.", lost,
	)), "sluice_log_lines_dropped_total"); err != nil {
		t.Error(err)
	}

	// The reader wakes: Run writes the rest, and ends.
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
		t.Errorf("%d lines came and %d were dropped, want %d together", got, lost, lines)
	}
}

// TestALogQueueIsBoundedInBytes queues ten lines that are large.
func TestALogQueueIsBoundedInBytes(t *testing.T) {
	q := NewLogQueue(io.Discard) // which nobody runs
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

// fickle fails while it is full, as a disk does.
type fickle struct {
	full bool
	got  []string
}

func (f *fickle) Write(p []byte) (int, error) {
	if f.full {
		return 0, errors.New("no space left on device")
	}
	f.got = append(f.got, string(p))
	return len(p), nil
}

// TestALogGoesOnWhenThereIsRoomAgain has a disk that is full for a while.
func TestALogGoesOnWhenThereIsRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fickle{}
		q := NewLogQueue(disk)
		go q.Run()
		buffer := []byte("1")
		write := func(line byte) {
			buffer[0] = line // as zap does with its buffers
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
			t.Error("Close reports that something is not written yet")
		}
		if got := strings.Join(disk.got, ""); got != "14" || q.dropped.Load() != 2 {
			t.Errorf("written are %q and %d are dropped, want 14 and 2", got, q.dropped.Load())
		}
	})
}

// TestALogIsWrittenBeforeTheEnd queues lines and closes at once.
func TestALogIsWrittenBeforeTheEnd(t *testing.T) {
	var out bytes.Buffer
	q := NewLogQueue(&out)
	for range 100 {
		if _, err := q.Write([]byte("line\n")); err != nil {
			t.Error(err)
		}
	}
	go q.Run()
	if !q.Close(time.Hour) || strings.Count(out.String(), "line\n") != 100 {
		t.Errorf("written is %q, want 100 lines", out.String())
	}
}
