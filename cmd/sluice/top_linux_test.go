package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// serveState serves a state with a denied key, as a debug listener does.
func serveState(t *testing.T) (addr string) {
	t.Helper()
	at := time.Unix(1_700_000_000, 0)
	state := &live.State{
		Version: live.Version, Time: at, Started: at.Add(-time.Hour), Program: "v1", Host: "host", Counters: "memory", TopKeys: "clear", HashKey: "beef",
		Config: live.Config{Hash: "cafe", Limits: 2, Domains: 1},
		Domains: []live.DomainState{{
			Domain: "shop", DeniedKeys: []live.Key{{Hash: "0123456789abcdef", Descriptor: "user=\x1b[31mevil\u202e", Rule: "user", Limit: "5/hour", PerSecond: 12.3, Share: 0.5, Denied: 99, Since: at}},
			Rules: []live.RuleState{{Rule: "user", Limit: "5/hour", Rate: live.Rate{Hits: 20, Denied: 12.3}}},
		}},
	}
	debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(state)
	}))
	t.Cleanup(debug.Close)
	return strings.TrimPrefix(debug.URL, "http://")
}

// colours matches a control sequence that sets a colour of the text.
var colours = regexp.MustCompile(`\x1b\[(\d+;)*(3[0-8]|9[0-7])[;m]`)

// TestTopOnATerminal runs top on a terminal. It must use colours unless NO_COLOR is set, and
// restore the terminal after q.
func TestTopOnATerminal(t *testing.T) {
	addr := serveState(t)
	for _, noColour := range []string{"", "1", "yes"} {
		t.Run("NO_COLOR="+noColour, func(t *testing.T) {
			t.Setenv("NO_COLOR", noColour)
			t.Setenv("TERM", "xterm-256color")
			master, terminal := openTerminals(t)
			must.OK(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 60}))
			was, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			must.OK(t, err)
			ended := make(chan int, 1)
			go func() {
				ended <- run(t.Context(), []string{"sluice", "top", "--addr", addr, "--interval", "100ms"}, console{terminal, terminal, terminal})
			}()
			shown := readUntil(t, master, "user=?[31mevil?")
			if got := colours.MatchString(shown); got != (noColour == "") {
				t.Errorf("colours are used: %t: %q", got, shown)
			}
			_, err = master.WriteString(" ")
			must.OK(t, err)
			readUntil(t, master, "paused")
			_, err = master.WriteString("q")
			must.OK(t, err)
			readUntil(t, master, "\x1b[?1049l") // leaves the alternate screen
			if code := <-ended; code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			is, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil || *is != *was {
				t.Errorf("the terminal is %+v, %v, was %+v", is, err, was)
			}
		})
	}
}

// TestTopOnADumbTerminal verifies that top prints the state once, without control sequences, on a
// terminal that does not know any.
func TestTopOnADumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	master, terminal := openTerminals(t)
	code := run(t.Context(), []string{"sluice", "top", "--addr", serveState(t)}, console{terminal, terminal, terminal})
	if shown := readUntil(t, master, "shop: user 5/hour\r\n\r\n"); code != 0 || strings.Contains(shown, "\x1b") {
		t.Errorf("exit code %d: %q", code, shown)
	}
}

// TestTopWithoutKeyboard verifies that top prints the state once if standard input is not a terminal.
func TestTopWithoutKeyboard(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	null, err := os.Open(os.DevNull)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, null.Close()) })
	master, terminal := openTerminals(t)
	code := run(t.Context(), []string{"sluice", "top", "--addr", serveState(t)}, console{null, terminal, terminal})
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if shown := readUntil(t, master, "shop: user 5/hour\r\n"); strings.Contains(shown, "\x1b[?1049h") {
		t.Errorf("the output is %q", shown)
	}
}

// readUntil reads from a terminal until its output contains text.
func readUntil(t *testing.T, from *os.File, text string) string {
	t.Helper()
	var shown bytes.Buffer
	piece := make([]byte, 4096)
	for !strings.Contains(shown.String(), text) {
		n, err := from.Read(piece)
		if err != nil && err != io.EOF {
			t.Fatalf("%v after %q", err, shown.String())
		}
		shown.Write(piece[:n])
	}
	return shown.String()
}

// TestTopSumsReplicas verifies that figures of replicas are added, and that a replica that does not
// respond is reported.
func TestTopSumsReplicas(t *testing.T) {
	addr := serveState(t)
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"sluice", "top", "--addr", addr + "," + addr + ",127.0.0.1:1"}, console{nil, &out, &errs})
	if code != 1 || !strings.Contains(errs.String(), "query 127.0.0.1:1: ") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if strings.Contains(out.String(), "differ between replicas") {
		t.Errorf("replicas with the same hash key are reported to have different hashes:\n%s", out.String())
	}
	for _, want := range []string{"2 replicas", "24.6", "! 127.0.0.1:1: no answer: ", "[no_answer]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the sum lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	code = run(t.Context(), []string{"sluice", "top", "--addr", addr + "," + addr}, console{nil, &out, &errs})
	if code != 0 || strings.Contains(out.String(), "no_answer") {
		t.Errorf("with replicas that respond, exit code %d:\n%s", code, out.String())
	}
}
