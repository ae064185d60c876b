package proxy_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// top returns what `sluice top --once` says of a sluice.
func top(t *testing.T, s *sluice.Sluice, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sluiceBinary, append([]string{"top", "--once", "--addr", s.Addr("debug")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v:\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// TestTopNamesWhoFloods has one of many users ask too much. That user's key is the first line's.
func TestTopNamesWhoFloods(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hashed", "clear", "off"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p, limits := play(t, setting{
				rules:    rulesOf(1),
				args:     []string{"--top-keys", mode},
				listener: listener{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
			})
			window.AwaitHour(t)
			for i := range 60 {
				p.get(t, "/", fmt.Sprintf("x-user: user-%d", i%20))
				if got := p.get(t, "/", "x-user: flooder"); i > 2 && got.status != http.StatusTooManyRequests {
					t.Fatalf("the flooder's request %d: %d, want 429", i, got.status)
				}
			}
			said := top(t, limits)
			lines := strings.Split(said, "\n")
			first := ""
			for i, line := range lines {
				if strings.Contains(line, "DENIED/S  SHARE") {
					first = lines[i+1]
					break
				}
			}
			want := map[string]string{"hashed": "  #", "clear": "  user=flooder  d: user 1/hour", "off": ""}[mode]
			if mode == "hashed" && !strings.HasSuffix(first, "  d: user 1/hour") {
				t.Errorf("the first key is %q, want one of the rule user", first)
			}
			if !strings.Contains(first, want) || (mode == "off") != (first == "") {
				t.Errorf("the first key is %q, want %q:\n%s", first, want, said)
			}
			if got := strings.Contains(said, "flooder"); got != (mode == "clear") {
				t.Errorf("top says the value: %v:\n%s", got, said)
			}
		})
	}
}
