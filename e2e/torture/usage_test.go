package torture

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// Usage is the resource usage of a process.
type Usage struct {
	process.Memory
	// Files is the number of open file descriptors.
	Files int
	// Goroutines is 0 if the metrics listener does not answer.
	Goroutines int
}

func (u Usage) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.1f MiB peak, %d files, %d goroutines",
		float64(u.RSS)/(1<<20), float64(u.Peak)/(1<<20), u.Files, u.Goroutines)
}

// Measure returns the current usage of sluice.
func Measure(tb testing.TB, s *sluice.Sluice) Usage {
	tb.Helper()
	u, err := UsageOf(s.PID())
	must.OK(tb, err)
	u.Goroutines = int(suite.Metrics(tb, s).Sum("go_goroutines"))
	return u
}

// UsageOf returns the kernel's figures of a process, without Goroutines.
func UsageOf(pid int) (u Usage, err error) {
	if u.Memory, err = process.MemoryOf(pid); err != nil {
		return u, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.Files = len(files)
	return u, err
}

// ResetPeak resets [Usage.Peak] to the current resident memory.
func ResetPeak(tb testing.TB, s *sluice.Sluice) {
	tb.Helper()
	must.OK(tb, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.PID()), []byte("5"), 0))
}

// CollectGarbage runs sluice's garbage collector.
func CollectGarbage(tb testing.TB, s *sluice.Sluice) {
	tb.Helper()
	suite.Get(tb, "http://"+s.Addr("debug")+"/debug/pprof/heap?gc=1")
}
