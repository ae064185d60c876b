package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// TestProgress verifies that progress is shown after a second, and then five times per second.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	begin := time.Unix(0, 0)
	m := &meter{out: &out, total: 1000, begun: begin, next: begin.Add(meterDelay)}
	for _, step := range []struct {
		after time.Duration
		p     simulate.Progress
		want  string
	}{
		{500 * time.Millisecond, simulate.Progress{Bytes: 100, Lines: 10}, ""},
		{2 * time.Second, simulate.Progress{Bytes: 250, Lines: 20}, "20 lines, 25 %, 10 per second, 6s left"},
		{2100 * time.Millisecond, simulate.Progress{Bytes: 260, Lines: 21}, ""},
		{3 * time.Second, simulate.Progress{Pass: 1, Bytes: 100, Lines: 6}, "--recommend, pass 1: 6 lines, 10 %"},
		{5 * time.Second, simulate.Progress{Pass: 1, Bytes: 1000, Lines: 60}, "--recommend, pass 1: 60 lines, 100 %, 30 per second"},
	} {
		out.Reset()
		m.show(begin.Add(step.after), step.p)
		if step.want != "" {
			step.want = eraseLine + step.want
		}
		if got := out.String(); got != step.want {
			t.Errorf("after %v the meter shows %q, want %q", step.after, got, step.want)
		}
	}
	m.total = 0
	if got, want := m.text(time.Second, simulate.Progress{Bytes: 5, Lines: 7}), "7 lines, 7 per second"; got != want {
		t.Errorf("for a pipe the meter shows %q, want %q", got, want)
	}
	out.Reset()
	if m.stop(); out.String() != eraseLine {
		t.Errorf("stop writes %q, want %q", out.String(), eraseLine)
	}
}

// TestProgressNeedsTerminal verifies that progress is shown on a terminal, but not in a file, in
// memory or in /dev/null.
func TestProgressNeedsTerminal(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	must.OK(t, os.WriteFile(log, []byte("12345"), 0o600))
	file, err := os.OpenFile(log, os.O_RDWR, 0)
	must.OK(t, err)
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must.OK(t, err)
	defer null.Close()
	if newMeter(file, nil, time.Time{}) != nil || newMeter(null, nil, time.Time{}) != nil || newMeter(&bytes.Buffer{}, nil, time.Time{}) != nil {
		t.Error("progress is shown without a terminal")
	}
	_, terminal := openTerminals(t)
	if m := newMeter(terminal, []string{log, log}, time.Time{}); m == nil || m.total != 10 {
		t.Errorf("on a terminal the meter is %+v", m)
	}
	if m := newMeter(terminal, []string{log, "-"}, time.Time{}); m == nil || m.total != 0 {
		t.Errorf("for standard input the meter is %+v", m)
	}
}

// openTerminals returns a pseudo-terminal: master is the end of the user, terminal that of the
// program.
func openTerminals(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("cannot open a pseudo-terminal: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	must.OK(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.OK(t, err)
	terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must.OK(t, err)
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}

// TestMeterIsErased ends a simulation that shows its progress and waits for more of its log, by an
// interrupt and by the end of the log. The progress must be erased before anything else is printed.
// Only a complete simulation may replace an existing report.
func TestMeterIsErased(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		m := simulateUntilShown(t)
		m.interrupt()
		m.expectEnd(t, 1, eraseLine+"sluice: interrupted\r\n")
		if got, err := os.ReadFile(m.report); string(got) != report.Start || err != nil {
			t.Errorf("the report has %q, %v, want the old one", got, err)
		}
	})
	t.Run("at the end", func(t *testing.T) {
		m := simulateUntilShown(t)
		must.OK(t, m.feed.Close())
		m.expectEnd(t, 0, "these rules deny")
		if text, err := os.ReadFile(m.report); err != nil || !strings.Contains(string(text), "<html") {
			t.Errorf("the report is %.20q, %v", text, err)
		}
	})
}

// simulation is a running simulation that has shown its progress and waits for more of its log.
type simulation struct {
	feed      *os.File
	seen      *bufio.Reader
	report    string
	interrupt context.CancelFunc
	ended     chan int
}

func simulateUntilShown(t *testing.T) *simulation {
	t.Helper()
	master, terminal := openTerminals(t)
	dir := t.TempDir()
	m := &simulation{seen: bufio.NewReader(master), report: filepath.Join(dir, "report.html"), ended: make(chan int, 1)}
	rules := filepath.Join(dir, "rules.yaml")
	const text = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }]\n"
	must.OK(t, os.WriteFile(rules, []byte(text), 0o600))
	must.OK(t, os.WriteFile(m.report, []byte(report.Start), 0o600))
	log, feed, err := os.Pipe()
	must.OK(t, err)
	m.feed = feed
	t.Cleanup(func() {
		m.interrupt()
		feed.Close() // so that the abandoned simulation ends
		log.Close()
	})
	shown, fed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		for at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC); ; at = at.Add(time.Second) { // or lines would be held to be sorted
			select {
			case <-shown:
				return
			default:
				if _, err := feed.Write(bytes.Repeat([]byte(at.Format(time.RFC3339)+" al\n"), 1000)); err != nil {
					return
				}
			}
		}
	}()
	var ctx context.Context
	ctx, m.interrupt = context.WithCancel(t.Context())
	go func() {
		command := "sluice simulate - -c " + rules + " --format '%START_TIME% %REQ(USER)%' --descriptor user={user} --report " + m.report
		m.ended <- run(ctx, arguments(command), console{log, terminal, terminal})
		terminal.Close() // so that nobody waits for more output
	}()
	if text, err := m.seen.ReadString('K'); err != nil || text != eraseLine { // progress starts with it
		t.Fatalf("the terminal shows %q, %v", text, err)
	}
	close(shown)
	<-fed
	return m
}

// expectEnd waits for the exit code, and for a line that starts with the given text, in place of
// the meter.
func (m *simulation) expectEnd(t *testing.T, code int, line string) {
	t.Helper()
	if got := <-m.ended; got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	var all strings.Builder
	for !strings.Contains(all.String(), line) {
		text, err := m.seen.ReadString('\n')
		if all.WriteString(text); err != nil {
			t.Fatalf("the terminal shows %q, %v, want %q", all.String(), err, line)
		}
	}
	first, _, _ := strings.Cut(all.String(), "\n")
	if i := strings.LastIndex(first, eraseLine); i < 0 || strings.Contains(first[i:], "per second") {
		t.Errorf("the terminal shows %q, want the meter erased first", first)
	}
}
