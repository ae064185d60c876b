package blocks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// stopped are clients whose limits are at least half full again after their blocks have ended.
var stopped = []mixClient{
	{name: "bucket", descriptors: [][]limit{{token(1000, time.Second, 3000)}}},
	{name: "leaky", descriptors: [][]limit{{leaky(1000, time.Second, 1999)}}},
	{name: "sliding", descriptors: [][]limit{{sliding(4000, 4*time.Second, 8)}}},
	{name: "halves", descriptors: [][]limit{{sliding(2000, 4*time.Second, 2)}}},
	{name: "fixed", descriptors: [][]limit{{fixed(2000, 2*time.Second)}}},
	{name: "list", descriptors: [][]limit{{token(1000, time.Second, 3000), sliding(6000, 4*time.Second, 8)}}},
}

// TestStoppedReplica stops a replica that has blocks for longer than these last. When others have
// used up the limits, it continues with requests that were sent to it in the meantime, for more hits
// than its blocks had. It does not use the blocks. The ledger knows that the replica decides these
// requests after it continues. In the end others use up what expires with the ended sub-windows.
func TestStoppedReplica(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		suite.Skip(t, "/proc shows when a process has stopped")
	}
	m := startPatientMix(t, stopped)
	ctx, all := t.Context(), m.some(len(stopped))
	for range times(t, 1, 20) {
		m.awaitBlocks(t, all)
		together(all, func(which int) { m.trickle(ctx, 0, which, 700*time.Millisecond) })
		together(all, func(which int) { m.trickle(ctx, 0, which, between(20*time.Millisecond, 100*time.Millisecond)) })
		s := m.sluices[0].Load()
		must.OK(t, s.Signal(syscall.SIGSTOP))
		suite.Eventually(t, "the replica has stopped", func() bool { return hasStopped(t, s.PID()) })
		wait(ctx, 1500*time.Millisecond+between(0, time.Second))
		var continued atomic.Int64
		var queued sync.WaitGroup
		for which := range stopped {
			for range 30 {
				queued.Go(func() { m.sendTo(ctx, 0, which, m.hits(which, 60), continued.Load) })
			}
		}
		together(all, func(which int) { m.burst(ctx, which, 1, 2) })
		continued.Store(m.now())
		must.OK(t, s.Signal(syscall.SIGCONT))
		queued.Wait()
		together(all, func(which int) { m.burst(ctx, which, 0, 1, 2) })
		for range 8 { // sub-windows with hits of the blocks expire one window after these ended
			wait(ctx, 500*time.Millisecond)
			together(all, func(which int) { m.burst(ctx, which, 1, 2) })
		}
	}
	m.verify(t, 1)
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// hasStopped reports whether all threads of a process have stopped.
func hasStopped(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	must.OK(t, err)
	for _, file := range files {
		stat, err := os.ReadFile(file)
		must.OK(t, err)
		if text := string(stat); !strings.HasPrefix(text[strings.LastIndexByte(text, ')'):], ") T") {
			return false
		}
	}
	return len(files) > 0
}
