package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate"
)

// meter shows on a terminal how far a simulation is. Nothing is shown of one that is soon over.
type meter struct {
	out io.Writer
	// total is the logs' length in bytes, 0 if it is not known.
	total int64
	// begun is when the present reading of the logs began, and next when to show it again.
	begun, next time.Time
	pass        int
	// mu guards the rest. Whoever ends the meter need not wait for who shows it.
	mu             sync.Mutex
	shown, stopped bool
}

const (
	// meterDelay is how long a simulation takes before it is shown, and meterPause how long
	// what is shown stays.
	meterDelay    = time.Second
	meterInterval = 200 * time.Millisecond
	// eraseLine makes what is written next replace the line.
	eraseLine = "\r\x1b[K"
)

// newMeter returns a meter that begins now, nil where out is no terminal.
func newMeter(out io.Writer, logs []string, now time.Time) *meter {
	if f, ok := out.(*os.File); !ok || !isTerminal(f) {
		return nil
	}
	m := &meter{out: out, begun: now, next: now.Add(meterDelay)}
	for _, path := range logs {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			m.total = 0 // of a pipe
			break
		}
		m.total += info.Size()
	}
	return m
}

func (m *meter) show(now time.Time, p simulate.Progress) {
	if p.Pass != m.pass {
		m.pass, m.begun = p.Pass, now
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
	_, _ = io.WriteString(m.out, eraseLine+m.text(now.Sub(m.begun), p)) // a report does not fail for it
}

// text is a line of at most 79 characters.
func (m *meter) text(took time.Duration, p simulate.Progress) string {
	text := fmt.Sprintf("%d lines", p.Lines)
	if p.Pass > 0 {
		text = fmt.Sprintf("--recommend, reading %d: %s", p.Pass, text)
	}
	if m.total > 0 {
		text += fmt.Sprintf(", %d %%", p.Bytes*100/max(m.total, p.Bytes))
	}
	if took > 0 {
		text += fmt.Sprintf(", %.0f a second", float64(p.Lines)/took.Seconds())
	}
	if took > 0 && m.total > p.Bytes && p.Bytes > 0 {
		left := time.Duration(float64(took) * (float64(m.total)/float64(p.Bytes) - 1))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

// stop erases what is shown, and nothing is shown any more.
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
