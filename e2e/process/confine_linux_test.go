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
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestChildEndsWithStarter(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_STARTER=1")
	starter, err := process.Start(cmd)
	must.OK(t, err)
	t.Cleanup(starter.Kill)
	child := childOf(t, starter)
	if err := starter.Signal(syscall.SIGKILL); err != nil { // not to its process group
		t.Fatal(err)
	}
	awaitGone(t, child)
}

func TestKillEndsChildren(t *testing.T) {
	p := start(t, `sleep 1000 & echo "child $!"; wait`)
	child := childOf(t, p)
	p.Kill()
	awaitGone(t, child)
}

// childOf returns the process ID that p prints for the process that it started.
func childOf(t *testing.T, p *process.Process) (child int) {
	t.Helper()
	if err := p.WaitLine(t.Context(), func(line string) bool {
		number, found := strings.CutPrefix(line, "child ")
		child, _ = strconv.Atoi(number)
		return found
	}); err != nil {
		t.Fatal(err)
	}
	return child
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 200_000 {
		if !running(pid) {
			return
		}
		<-tick.C
	}
	t.Errorf("process %d still runs", pid)
}

// running reports whether the process exists and is not a zombie, which an orphan stays if there is
// no reaper.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
