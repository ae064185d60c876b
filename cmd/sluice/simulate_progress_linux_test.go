package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-ratelimit/sluice/simulate"
)

// TestProgress shows how far a simulation is after a second, and then five times a second.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	begin := time.Unix(0, 0)
	m := &meter{out: &out, total: 1000, begun: begin, next: begin.Add(meterPatience)}
	for _, step := range []struct {
		after time.Duration
		p     simulate.Progress
		want  string
	}{
		{500 * time.Millisecond, simulate.Progress{Bytes: 100, Lines: 10}, ""},
		{2 * time.Second, simulate.Progress{Bytes: 250, Lines: 20}, "20 lines, 25 %, 10 a second, 6s left"},
		{2100 * time.Millisecond, simulate.Progress{Bytes: 260, Lines: 21}, ""},
		{3 * time.Second, simulate.Progress{Pass: 1, Bytes: 100, Lines: 6}, "--recommend, reading 1: 6 lines, 10 %"},
		{5 * time.Second, simulate.Progress{Pass: 1, Bytes: 1000, Lines: 60}, "--recommend, reading 1: 60 lines, 100 %, 30 a second"},
	} {
		out.Reset()
		m.show(begin.Add(step.after), step.p)
		if step.want != "" {
			step.want = eraseLine + step.want
		}
		if got := out.String(); got != step.want {
			t.Errorf("after %v it shows %q, want %q", step.after, got, step.want)
		}
	}
	m.total = 0
	if got, want := m.text(time.Second, simulate.Progress{Bytes: 5, Lines: 7}), "7 lines, 7 a second"; got != want {
		t.Errorf("of a pipe it shows %q, want %q", got, want)
	}
	out.Reset()
	if m.end(); out.String() != eraseLine {
		t.Errorf("at the end it writes %q", out.String())
	}
}

// TestProgressIsForTerminals has nothing shown in a file, in memory or in /dev/null, and
// something on a terminal.
func TestProgressIsForTerminals(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if newMeter(file, nil, time.Time{}) != nil || newMeter(null, nil, time.Time{}) != nil || newMeter(&bytes.Buffer{}, nil, time.Time{}) != nil {
		t.Error("progress is shown where there is no terminal")
	}
	terminal := openTerminal(t)
	if m := newMeter(terminal, []string{log, log}, time.Time{}); m == nil || m.total != 10 {
		t.Errorf("on a terminal the meter is %+v", m)
	}
	if m := newMeter(terminal, []string{log, "-"}, time.Time{}); m == nil || m.total != 0 {
		t.Errorf("of standard input the meter is %+v", m)
	}
}

// openTerminal returns a terminal that nobody looks at.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal
}
