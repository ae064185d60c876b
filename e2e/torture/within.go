package torture

import (
	"os"
	"os/exec"
	"testing"
)

// Within has sluice run by another program, such as unshare, that becomes what its
// last arguments name; see [Options].
func Within(program ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		path, err := exec.LookPath(program[0])
		if err != nil {
			path = program[0] // which says so when it is started
		}
		cmd.Args = append(append([]string(nil), program...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = path
	}
}

// NotRun skips a test that needs what is not there, and says so in the last line of
// make test. Where namespaces are required, as in CI, the test fails.
func NotRun(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("SLUICE_DROPIN") == "required" {
		tb.Fatal(what)
	}
	if notRun(what) != 0 {
		tb.Fatal("SLUICE_NOT_RUN cannot be written to")
	}
	tb.Skip(what)
}
