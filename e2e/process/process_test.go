package process_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_STARTER") != "" {
		startAndHang()
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(exec.Command("/bin/sh", "-c", script))
	must.OK(t, err)
	t.Cleanup(p.Kill)
	return p
}

func contains(part string) func(string) bool {
	return func(line string) bool { return strings.Contains(line, part) }
}

func TestWaitLineSeesPastAndUnfinishedLines(t *testing.T) {
	p := start(t, `echo one; echo two >&2; printf three`)
	for _, part := range []string{"two", "one", "three"} {
		if err := p.WaitLine(t.Context(), contains(part)); err != nil {
			t.Errorf("WaitLine(%q) = %v, want nil", part, err)
		}
	}
	err := p.WaitLine(t.Context(), contains("four"))
	if err == nil || !strings.Contains(err.Error(), "one\ntwo\nthree") {
		t.Errorf("WaitLine after the end = %v, want an error with the output", err)
	}
}

func TestStopReturnsTheExitCode(t *testing.T) {
	p := start(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	must.OK(t, p.WaitLine(t.Context(), contains("ready")))
	if code, err := p.Stop(t.Context()); code != 7 || err != nil {
		t.Errorf("Stop() = %d, %v, want 7, nil", code, err)
	}
	if code, err := p.Stop(t.Context()); code != 7 || err != nil {
		t.Errorf("second Stop() = %d, %v, want 7, nil", code, err)
	}
}

func TestStopKillsAfterTimeout(t *testing.T) {
	p := start(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	must.OK(t, p.WaitLine(t.Context(), contains("ready")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Stop(ctx); err == nil {
		t.Error("Stop() = nil, want an error")
	}
	if code, err := p.Wait(t.Context()); code != -1 || err != nil {
		t.Errorf("Wait() = %d, %v, want -1, nil", code, err)
	}
}

func TestStartReportsAMissingProgram(t *testing.T) {
	if _, err := process.Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("Start() = nil, want an error")
	}
}

// startAndHang is the process that TestChildEndsWithStarter kills.
func startAndHang() {
	p, err := process.Start(exec.Command("sleep", "1000"))
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("child " + strconv.Itoa(p.PID()) + "\n")
	select {}
}

func TestCtrlCReachesOnlyTheStarter(t *testing.T) {
	p := start(t, `sleep 1000`)
	if group, err := syscall.Getpgid(p.PID()); group != p.PID() || err != nil {
		t.Errorf("the program's process group is %d, %v, want its own, %d", group, err, p.PID())
	}
}
