//go:build torture

package torture

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestCPUStarvation takes the CPU from sluice, as a container's quota, busy neighbours and a suspended
// machine do. Calls are late, and callers reset thousands of them, but no reply is wrong, no call is
// lost and no connection is closed. Afterwards calls are answered as before.
func TestCPUStarvation(t *testing.T) {
	Parallel(t)
	for _, tt := range []struct {
		name  string
		env   []string
		fault func(t *testing.T, s *sluice.Sluice, load *Load, d time.Duration)
	}{
		{"quota", nil, func(t *testing.T, s *sluice.Sluice, _ *Load, d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); {
				signal(t, s, syscall.SIGSTOP)
				time.Sleep(80 * time.Millisecond) // the fault
				signal(t, s, syscall.SIGCONT)
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{"neighbours", []string{"GOMAXPROCS=1"}, func(t *testing.T, _ *sluice.Sluice, _ *Load, d time.Duration) {
			t.Helper()
			for range 4 {
				p, err := process.Start(exec.Command("sh", "-c", "while :; do :; done"))
				must.OK(t, err)
				defer p.Kill()
			}
			time.Sleep(d)
		}},
		{"suspended", nil, func(t *testing.T, s *sluice.Sluice, load *Load, d time.Duration) {
			t.Helper()
			signal(t, s, syscall.SIGSTOP)
			time.Sleep(d) // the fault
			signal(t, s, syscall.SIGCONT)
			load.AwaitAnswers(t, 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			Parallel(t)
			rnd := Rand(t)
			ledger := NewLedger(200, 50)
			s := Start(t, Options{Rules: ledger.Rules(), Env: tt.env})
			load := StartLoad(t, LoadOptions{
				Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd),
			})
			load.Run(t, Pick(2*time.Second, 5*time.Second))
			before := Measure(t, s)
			load.Phase("starving")
			tt.fault(t, s, load, Pick(3*time.Second, 30*time.Second))
			load.Phase("recovering")
			load.AwaitAnswers(t, MinRate)
			load.Phase("after")
			load.Run(t, Pick(2*time.Second, 5*time.Second))
			report := load.Stop(t)
			report.AtLeast(t, MinRate, "before", "after")
			report.NoErrors(t, "before", "starving", "recovering", "after")
			if report.Phase(t, "starving").Answered() == 0 {
				t.Error("no call was answered during the starvation")
			}
			suite.Eventually(t, "no more files than before: "+before.String(), func() bool {
				return Measure(t, s).Files <= before.Files
			})
			ledger.CheckCounters(t, s)
		})
	}
}

func signal(t *testing.T, s *sluice.Sluice, sig syscall.Signal) {
	t.Helper()
	must.OK(t, s.Signal(sig))
}
