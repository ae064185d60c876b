package process

import (
	"bytes"
	"context"
	"errors"
	"sync"
)

var errEnded = errors.New("the program ended")

// log stores the output of a program and wakes goroutines that wait for a line.
type log struct {
	// readMu is locked while output is read; see [Process.PauseOutput].
	readMu sync.Mutex

	mu    sync.Mutex
	text  bytes.Buffer
	ended bool
	// changed is closed and replaced when text or ended changes.
	changed chan struct{}
}

func newLog() *log { return &log{changed: make(chan struct{})} }

func (l *log) Write(p []byte) (int, error) {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	l.wakeLocked()
	return len(p), nil
}

func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wakeLocked()
}

func (l *log) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns nil when match accepts a line. match is called once per line.
func (l *log) wait(ctx context.Context, match func(string) bool) error {
	seen := 0
	for {
		lines, ended, changed := l.linesFrom(seen)
		for line := range bytes.Lines(lines) {
			seen += len(line)
			if match(string(bytes.TrimSuffix(line, []byte("\n")))) {
				return nil
			}
		}
		if ended {
			return errEnded
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// linesFrom returns a copy of the complete lines after offset, including an incomplete last line if
// the program has ended.
func (l *log) linesFrom(offset int) (lines []byte, ended bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines = l.text.Bytes()[offset:]
	if !l.ended {
		lines = lines[:bytes.LastIndexByte(lines, '\n')+1]
	}
	return bytes.Clone(lines), l.ended, l.changed
}
