package process_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

func TestNothingOutlivesItsStarter(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_STARTER=1")
	starter, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(starter.Kill)
	var child int
	if err := starter.WaitLine(t.Context(), func(line string) bool {
		number, found := strings.CutPrefix(line, "child ")
		child, _ = strconv.Atoi(number)
		return found
	}); err != nil {
		t.Fatal(err)
	}
	starter.Kill()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for running(child) {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("child %d is alive", child)
		}
	}
}

// running reports whether the process exists and is no zombie, as an orphan
// remains where nobody reaps.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
