package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestColoursOfFindings verifies that check and envoy check colour severities on a terminal, but
// not in a pipe, on a terminal without colours, or if NO_COLOR is set.
func TestColoursOfFindings(t *testing.T) {
	t.Chdir(t.TempDir())
	must.OK(t, os.WriteFile("rules.yaml", []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 0, algorithm: concurrency, name: n}}]\n"), 0o600))
	must.OK(t, os.WriteFile("bad.yaml", []byte("domain: d\nerror: x\n"), 0o600))
	must.OK(t, os.WriteFile("envoy.yaml", []byte("{static_resources: {listeners: []}}"), 0o600))
	for _, tt := range []struct {
		name, term, noColor string
		piped, coloured     bool
	}{
		{"terminal", "xterm", "", false, true},
		{"NO_COLOR", "xterm", "1", false, false},
		{"dumb terminal", "dumb", "", false, false},
		{"pipe", "xterm", "", true, false},
	} {
		for command, want := range map[string]string{
			"check rules.yaml": "rules.yaml:2:36: \x1b[33mwarning:\x1b[0m leases: ", "check bad.yaml": "bad.yaml:2:1: \x1b[31merror:\x1b[0m ",
			"envoy check envoy.yaml -c rules.yaml": "\x1b[31merror:\x1b[0m ",
		} {
			t.Setenv("TERM", tt.term)
			t.Setenv("NO_COLOR", tt.noColor)
			master, terminal := openTerminals(t)
			var out bytes.Buffer
			c := console{terminal, terminal, terminal}
			if tt.piped {
				c.out = &out
			}
			run(t.Context(), append([]string{"sluice"}, strings.Fields(command)...), c)
			if !tt.coloured {
				want = strings.NewReplacer("\x1b[33m", "", "\x1b[31m", "", "\x1b[0m", "").Replace(want)
			}
			printed := out.String()
			if !tt.piped {
				_ = terminal.Close()
				all, _ := io.ReadAll(master) // ends with an error, as the terminal is closed
				printed = string(all)
			}
			if !strings.Contains(printed, want) {
				t.Errorf("%s, %s: %q, want %q", tt.name, command, printed, want)
			}
		}
	}
}
