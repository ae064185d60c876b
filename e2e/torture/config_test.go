//go:build torture

package torture

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestConfigFile damages the rules file under load: the file is truncated, as by a writer that
// dies, or made unreadable. Each fault is rejected once, with its position in the file. The active
// rules and all counters stay.
func TestConfigFile(t *testing.T) {
	Parallel(t)
	rnd := Rand(t)
	ledger := NewLedger(200, 100)
	dir := filepath.Join(t.TempDir(), "config")
	path := filepath.Join(dir, "rules.yaml")
	do := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	do(os.Mkdir(dir, 0o755))
	// The file is one bracketed value, so no prefix is valid.
	lines := strings.Split(strings.TrimSuffix(ledger.Rules(), "\n"), "\n")
	for i := range lines[2:] {
		lines[2+i] = strings.TrimPrefix(lines[2+i], "  - ")
	}
	valid := "{ " + lines[0] + ", " + lines[1] + " [\n" + strings.Join(lines[2:], ",\n") + "\n]}"
	write := func(text string) { do(os.WriteFile(path, []byte(text), 0o644)) }
	write(valid)
	s := Start(t, Options{Args: []string{"--config", path}, Prepare: asUnprivilegedUser(t)})
	load := StartLoad(t, LoadOptions{Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})

	faults := []struct {
		name   string
		do     func()
		logged string
	}{
		{"cut off", func() { write(valid[:rnd.IntN(len(valid))]) }, path + ":"},
		{"zeros", func() { n := rnd.IntN(len(valid)); write(valid[:n] + strings.Repeat("\x00", len(valid)-n)) }, path + ":"},
		{"truncated", func() { do(os.Truncate(path, 0)) }, path},
		{"unlinked", func() { do(os.Remove(path)) }, "no rules at " + path},
		{"renamed", func() { do(os.Rename(path, path+"~")) }, "no rules at " + path},
		{"unreadable", func() { do(os.Chmod(path, 0)) }, "permission denied"},
		{"in a renamed directory", func() { do(os.Rename(dir, dir+"~")) }, "no rules at " + path},
		{"in an unreadable directory", func() { do(os.Chmod(dir, 0)) }, "permission denied"},
	}
	restore := func() {
		if err := os.Rename(dir+"~", dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		do(os.Chmod(dir, 0o755))
		if err := os.Chmod(path, 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		write(valid)
	}
	rounds := Pick(2, 25)
	for n := range rounds * len(faults) {
		fault := faults[n%len(faults)]
		fault.do()
		suite.Eventually(t, fault.name+" is rejected", func() bool {
			return suite.Metrics(t, s).Sum("sluice_config_last_load_successful") == 0
		})
		load.AwaitAnswers(t, 20)
		restore()
		suite.Eventually(t, "the rules are restored after "+fault.name, func() bool {
			return suite.Metrics(t, s).Sum("sluice_config_last_load_successful") == 1
		})
	}
	load.AwaitAnswers(t, MinRate)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before")
	report.NoErrors(t, "before")
	ledger.CheckCounters(t, s)
	page := suite.Metrics(t, s)
	if got := page.Sum("ratelimit_service_config_load_success"); got != 1 {
		t.Errorf("%v rule sets were loaded, want only the first", got)
	}
	if got, want := page.Sum("ratelimit_service_config_load_error"), float64(rounds*len(faults)); got < want {
		t.Errorf("%v rejections were counted, want at least %v", got, want)
	}
	for _, fault := range faults {
		if !strings.Contains(s.Log(), fault.logged) {
			t.Errorf("%s: the log does not contain %q", fault.name, fault.logged)
		}
	}
}

// asUnprivilegedUser returns a Prepare function that runs sluice as a user subject to file modes,
// or nil if this user is one.
func asUnprivilegedUser(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, dir := range []string{filepath.Dir(binary), filepath.Dir(t.TempDir())} {
		must.OK(t, os.Chmod(dir, 0o755))
	}
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
