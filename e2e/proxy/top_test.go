//go:build more

package proxy_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// top returns the output of `sluice top --once`.
func top(t *testing.T, s *sluice.Sluice, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sluiceBinary, append([]string{"top", "--once", "--addr", s.Addr("debug")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v:\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// TestTopShowsTheCause causes common problems behind an Envoy and checks that the first screen of
// `sluice top --once`, 24 lines of 80 columns, names each.
func TestTopShowsTheCause(t *testing.T) {
	t.Parallel()
	routes := `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`
	firstScreen := func(s *sluice.Sluice) string {
		lines := strings.Split(top(t, s), "\n")
		for _, line := range lines {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		return strings.Join(lines[:min(len(lines), 24)], "\n")
	}
	expect := func(t *testing.T, s *sluice.Sluice, want ...string) {
		t.Helper()
		packed := func(text string) string { return strings.Join(strings.Fields(text), "") } // text may be wrapped
		for i := range want {
			want[i] = packed(want[i])
		}
		screen := ""
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			screen = firstScreen(s)
			if containsAll(packed(screen), want) {
				return
			}
		}
		t.Fatalf("the first screen lacks one of %q:\n%s", want, screen)
	}
	t.Run("bad rules", func(t *testing.T) {
		t.Parallel()
		dir := configMap(t.TempDir())
		dir.write(t, rulesWithLimit(5))
		limits := startSluice(t, sluice.Options{Args: []string{"--config", dir.path()}})
		dir.write(t, "domain: d\ndescriptors:\n  - { key: user, rate_limit: { unit: fortnight } }")
		expect(t, limits, "CONDITIONS", "failed to load rules; keeping the previous rules", "rules.yaml:3:", `"fortnight"`)
		dir.write(t, rulesWithLimit(0))
		expect(t, limits, "rules loaded [ends rules_rejected]: d: user 5/hour -> 0/hour")
		if screen := firstScreen(limits); strings.Contains(screen, "CONDITIONS") {
			t.Errorf("problems remain after valid rules were loaded:\n%s", screen)
		}
	})
	t.Run("an unknown key", func(t *testing.T) {
		t.Parallel()
		p, limits := startSetup(t, setup{rules: strings.ReplaceAll(rulesWithLimit(5), "user", "usr"), listener: listener{routes: routes}})
		p.get(t, "/", "x-user: al")
		expect(t, limits, "NO RULE MATCHES", `nothing matches entry 1, user: the rules begin with usr (`, `did you mean "usr"?`)
	})
	t.Run("an unknown domain", func(t *testing.T) {
		t.Parallel()
		p, limits := startSetup(t, setup{rules: strings.ReplaceAll(rulesWithLimit(5), "domain: d", "domain: dd"), listener: listener{routes: routes}})
		p.get(t, "/", "x-user: al")
		expect(t, limits, "for the domain d, which has no rules; did you mean dd?")
	})
	t.Run("a dead store", func(t *testing.T) {
		t.Parallel()
		store := storetest.Start(t)
		limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, rulesWithLimit(5)), "--store", "redis://" + store.Addr}})
		p := startProxy(t, []listener{{routes: routes}}, "", limits)
		awaitStore(t, limits)
		store.Kill()
		p.get(t, "/", "x-user: al")
		expect(t, limits, "CONDITIONS", "the store is unavailable", store.Addr, "counters are shared")
		store.Run()
		expect(t, limits, "store recovered")
	})
}

func rulesWithLimit(limit int) string {
	return fmt.Sprintf(`
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: %d, count_refused: false }
`, limit)
}

// configMap is the mount directory of a ConfigMap.
type configMap string

func (c configMap) path() string { return string(c) }

func (c configMap) write(t *testing.T, rules string) {
	t.Helper()
	must.OK(t, volumetest.Update(string(c), map[string]string{"rules.yaml": rules}))
}
