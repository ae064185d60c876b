package process_test

import (
	"os"
	"os/exec"
	"strconv"
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
