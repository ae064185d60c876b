//go:build torture

package torture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestLogs makes sluice log megabytes to a pipe that is not read, and to a file system of 64 KiB,
// while clients call. No call fails, lost lines are counted, rules are reloaded, and the process
// exits although the log is blocked.
func TestLogs(t *testing.T) {
	Parallel(t)
	for _, tt := range []struct {
		name  string
		start func(t *testing.T, config string) *sluice.Sluice
		stick func(s *sluice.Sluice) (release func())
	}{
		{
			"a pipe that is not read",
			func(t *testing.T, config string) *sluice.Sluice {
				t.Helper()
				return Start(t, Options{Args: []string{"--config", config}})
			},
			func(s *sluice.Sluice) func() { return s.PauseOutput() },
		},
		{"a full disk", startOnSmallDisk, func(*sluice.Sluice) func() { return func() {} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			Parallel(t)
			rnd := Rand(t)
			ledger := NewLedger(200, 100)
			config := suite.WriteRules(t, ledger.Rules())
			dir := filepath.Dir(config)
			s := tt.start(t, dir)
			load := StartLoad(t, LoadOptions{Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})
			load.Run(t, time.Second)
			load.Phase("stuck")
			release := sync.OnceFunc(tt.stick(s))
			defer release()
			// The first hundred errors of a file are logged, about 200 bytes each.
			for n := range 150 {
				bad := fmt.Sprintf("domain: bad%d\ndescriptors:\n%s", n, strings.Repeat("  - { key: bad, bogus: 1 }\n", 100))
				suite.Replace(t, filepath.Join(dir, fmt.Sprint("bad", n, ".yaml")), bad)
			}
			suite.Eventually(t, "lines are lost", func() bool {
				return suite.Metrics(t, s).Sum("sluice_log_lines_dropped_total") > 1000
			})
			for n := range 150 {
				must.OK(t, os.Remove(filepath.Join(dir, fmt.Sprint("bad", n, ".yaml"))))
			}
			suite.Replace(t, config, ledger.Rules("  - { key: changes, rate_limit: { unit: hour, requests_per_unit: 7 } }"))
			suite.Eventually(t, "valid rules are loaded", func() bool { return limitOf(t, s, "changes") == 7 })
			load.Phase("after")
			load.Run(t, time.Second)
			report := load.Stop(t)
			report.AtLeast(t, MinRate, "before", "after")
			report.NoErrors(t, "before", "stuck", "after")
			ledger.CheckCounters(t, s)
			t.Logf("%v lines were lost", suite.Metrics(t, s).Sum("sluice_log_lines_dropped_total"))
			signal(t, s, syscall.SIGTERM)
			suite.Eventually(t, "sluice ends", func() bool {
				_, err := UsageOf(s.PID())
				return err != nil
			})
			release()
			if code, err := s.Wait(t.Context()); err != nil || code != 0 {
				t.Errorf("sluice exited with %d, %v, want 0", code, err)
			}
		})
	}
}

// startOnSmallDisk starts a sluice that logs to a file on a file system of 64 KiB.
func startOnSmallDisk(t *testing.T, config string) *sluice.Sluice {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "sluice", dir).CombinedOutput(); err != nil {
		suite.SkipWithoutNamespaces(t, fmt.Sprintf("a full disk, which needs root: %v: %s", err, strings.TrimSpace(string(out))))
	}
	const script = `mount -t tmpfs -o size=64k sluice "$0" && : >"$1" && { tail -n +1 -f "$1" & } && shift && exec "$@" 2>"$0/log"`
	return Start(t, Options{
		Args:    []string{"--config", config},
		Prepare: RunUnder("unshare", "--mount", "sh", "-c", script, dir, filepath.Join(dir, "log")),
	})
}
