package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestMemoryOfRules checks the figures in docs/sizing.md for the memory of many rules, and logs the
// table. Counters are not included: without requests their memory is not resident.
func TestMemoryOfRules(t *testing.T) {
	if _, err := process.MemoryOf(os.Getpid()); err != nil {
		t.Skip("the memory of a process is unknown without Linux's /proc:", err)
	}
	const counters, mb = 64 << 20, 1e6
	t.Log("| rules | resident after the start, MB | peak at the start | peak at a reload | ratio |\n| --- | --- | --- | --- | --- |")
	for _, tt := range []struct{ rules, limit int }{
		{1000, 192 << 20},
		{20_000, 192 << 20}, // the memory limit in our manifests
		{100_000, 320 << 20},
	} {
		// A reload needs about half as much more. The garbage collector's timing varies, more so on
		// a busy machine, so a quarter more is allowed, and one of three processes must stay within
		// that and the limit.
		var started, reloaded process.Memory
		for range 3 {
			started, reloaded = memoryOfRules(t, tt.rules)
			if reloaded.Peak <= min(maxAtReload(started), tt.limit-counters) {
				break
			}
		}
		t.Logf("| %d | %.0f | %.0f | %.0f | %.2f |", tt.rules, float64(started.RSS)/mb,
			float64(started.Peak)/mb, float64(reloaded.Peak)/mb, float64(reloaded.Peak)/float64(started.Peak))
		if most := maxAtReload(started); reloaded.Peak > most {
			t.Errorf("a reload of %d rules takes up to %d bytes, want at most 7/4 of the peak at the start, %d", tt.rules, reloaded.Peak, most)
		}
		if all := reloaded.Peak + counters; all > tt.limit {
			t.Errorf("%d rules and the counters take up to %d bytes, want at most %d, the limit in docs/sizing.md", tt.rules, all, tt.limit)
		}
	}
}

func maxAtReload(started process.Memory) int { return started.Peak * 7 / 4 }

// memoryOfRules returns the memory of a process with n rules, after the start and after a reload.
func memoryOfRules(t *testing.T, n int) (started, reloaded process.Memory) {
	t.Helper()
	dir := t.TempDir()
	write := func(requests int) {
		t.Helper()
		text := bytes.NewBufferString("domain: many\ndescriptors:\n")
		for i := range n {
			fmt.Fprintf(text, "  - key: user\n    value: customer-%06d\n    rate_limit: { unit: minute, requests_per_unit: %d }\n", i, requests+i%10)
		}
		suite.Replace(t, filepath.Join(dir, "rules.yaml"), text.String())
	}
	write(60)
	s := suite.StartSluice(t, sluice.Options{
		Binary: programs.sluice, Args: []string{"--config", dir},
		Env: []string{"GOMEMLIMIT=off", "GOGC="}, // as without a memory limit
	})
	memory := func() process.Memory {
		t.Helper()
		m, err := process.MemoryOf(s.PID())
		must.OK(t, err)
		return m
	}
	started = memory()
	write(600)
	loads := 0
	if err := s.WaitLine(t.Context(), func(line string) bool {
		if strings.Contains(line, `"rules loaded"`) {
			loads++
		}
		return loads == 2
	}); err != nil {
		t.Fatal(err)
	}
	suite.Metrics(t, s)
	return started, memory()
}
