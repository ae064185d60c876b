package torture

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

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

// Watch samples a process ten times per second. It is not safe for concurrent use.
type Watch struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	most Usage
	seen []Usage
}

// StartWatch samples sluice until Stop, or the end of the process or the test.
func StartWatch(tb testing.TB, s *sluice.Sluice) *Watch {
	tb.Helper()
	w := &Watch{stop: make(chan struct{})}
	w.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			u, err := UsageOf(s.PID())
			if err != nil {
				return // the test killed sluice, or will notice its end
			}
			w.add(u)
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	})
	tb.Cleanup(func() { w.shutDown() })
	return w
}

func (w *Watch) add(u Usage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, u)
	w.most.RSS, w.most.Peak, w.most.Files = max(w.most.RSS, u.RSS), max(w.most.Peak, u.Peak), max(w.most.Files, u.Files)
}

// Stop returns the maximum of each value, and all samples. Goroutines are not sampled.
func (w *Watch) Stop(tb testing.TB) (most Usage, seen []Usage) {
	tb.Helper()
	w.shutDown()
	if len(w.seen) == 0 {
		tb.Fatal("there are no samples of the process")
	}
	tb.Logf("at most %.1f MiB resident and %d files", float64(w.most.Peak)/(1<<20), w.most.Files)
	return w.most, w.seen
}

func (w *Watch) shutDown() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}
