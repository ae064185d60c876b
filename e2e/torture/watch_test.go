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

// Usage is what a process holds at one moment.
type Usage struct {
	process.Memory
	// Files is how many file descriptors are open.
	Files int
	// Goroutines is 0 if the metrics listener does not answer.
	Goroutines int
}

// String is for logs.
func (u Usage) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.1f at most, %d files, %d goroutines",
		float64(u.RSS)/(1<<20), float64(u.Peak)/(1<<20), u.Files, u.Goroutines)
}

// Measure returns what sluice holds now.
func Measure(tb testing.TB, s *sluice.Sluice) Usage {
	tb.Helper()
	u, err := UsageOf(s.PID())
	must.OK(tb, err)
	u.Goroutines = int(suite.Metrics(tb, s).Sum("go_goroutines"))
	return u
}

// UsageOf returns the kernel's figures of a process. Goroutines are not among them.
func UsageOf(pid int) (u Usage, err error) {
	if u.Memory, err = process.MemoryOf(pid); err != nil {
		return u, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.Files = len(files)
	return u, err
}

// ResetPeak sets [Usage.Peak] to the memory that is resident now.
func ResetPeak(tb testing.TB, s *sluice.Sluice) {
	tb.Helper()
	must.OK(tb, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.PID()), []byte("5"), 0))
}

// CollectGarbage runs sluice's garbage collector. The heap then holds only memory in use.
func CollectGarbage(tb testing.TB, s *sluice.Sluice) {
	tb.Helper()
	suite.Get(tb, "http://"+s.Addr("debug")+"/debug/pprof/heap?gc=1")
}

// Watch looks at a process ten times a second. One goroutine uses it.
type Watch struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	most Usage
	seen []Usage
}

// StartWatch watches sluice until Stop, the end of the process or of the test.
func StartWatch(tb testing.TB, s *sluice.Sluice) *Watch {
	tb.Helper()
	w := &Watch{stop: make(chan struct{})}
	w.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			u, err := UsageOf(s.PID())
			if err != nil {
				return // killed by the test, or the test will notice
			}
			w.add(u)
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	})
	tb.Cleanup(func() { w.end() })
	return w
}

func (w *Watch) add(u Usage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, u)
	w.most.RSS, w.most.Peak, w.most.Files = max(w.most.RSS, u.RSS), max(w.most.Peak, u.Peak), max(w.most.Files, u.Files)
}

// Stop returns the greatest of each value, and all values, ten a second. Goroutines are
// not counted.
func (w *Watch) Stop(tb testing.TB) (most Usage, seen []Usage) {
	tb.Helper()
	w.end()
	if len(w.seen) == 0 {
		tb.Fatal("nothing was seen of the process")
	}
	tb.Logf("at most %.1f MiB resident and %d files", float64(w.most.Peak)/(1<<20), w.most.Files)
	return w.most, w.seen
}

func (w *Watch) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}
