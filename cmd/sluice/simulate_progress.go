package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sluice-ratelimit/sluice/simulate"
)

// meter shows the progress of a simulation on a terminal, after meterDelay.
type meter struct {
	out io.Writer
	// total is the size of the logs in bytes, 0 if unknown.
	total int64
	// begun is the start of the current pass over the logs, and next the time of the next update.
	begun, next time.Time
	pass        int
	// mu protects the fields below: stop may be called while another goroutine calls show.
	mu             sync.Mutex
	shown, stopped bool
}

const (
	// meterDelay is the time before the first update, and meterInterval the time between updates.
	meterDelay    = time.Second
	meterInterval = 200 * time.Millisecond
	// eraseLine erases the line and returns to its start.
	eraseLine = "\r\x1b[K"
)

// newMeter returns a meter that starts now, nil if out is not a terminal.
func newMeter(out io.Writer, logs []string, now time.Time) *meter {
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(f.Fd()) {
		return nil
	}
	m := &meter{out: out, begun: now, next: now.Add(meterDelay)}
	for _, path := range logs {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			m.total = 0 // a pipe has no size
			break
		}
		m.total += info.Size()
	}
	return m
}

func (m *meter) show(now time.Time, p simulate.Progress) {
	if p.Pass != m.pass {
		m.pass = p.Pass
		m.begun = now
	}
	if now.Before(m.next) {
		return
	}
	m.next = now.Add(meterInterval)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	m.shown = true
	_, _ = io.WriteString(m.out, eraseLine+m.text(now.Sub(m.begun), p)) // not a reason to fail
}

// text returns a line of at most 79 characters.
func (m *meter) text(took time.Duration, p simulate.Progress) string {
	text := fmt.Sprintf("%d lines", p.Lines)
	if p.Pass > 0 {
		text = fmt.Sprintf("--recommend, pass %d: %s", p.Pass, text)
	}
	if m.total > 0 {
		text += fmt.Sprintf(", %d %%", p.Bytes*100/max(m.total, p.Bytes))
	}
	if took > 0 {
		text += fmt.Sprintf(", %.0f per second", float64(p.Lines)/took.Seconds())
	}
	if took > 0 && m.total > p.Bytes && p.Bytes > 0 {
		left := time.Duration(float64(took) * (float64(m.total)/float64(p.Bytes) - 1))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

// stop erases the line and ends the updates.
func (m *meter) stop() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown && !m.stopped {
		_, _ = io.WriteString(m.out, eraseLine)
	}
	m.stopped = true
}
