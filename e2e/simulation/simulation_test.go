package simulation

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// keepTrace keeps all events, to print them.
var keepTrace = os.Getenv("SLUICE_TRACE") != ""

var (
	firstSeed = flag.Uint64("first", 1, "first seed of TestSimulation")
	lastSeed  = flag.Uint64("last", 0, "last seed of TestSimulation; 0 for 20 with SLUICE_EFFORT=1, 200 with 10")
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)   // so that a seed gives the same trace
	debug.SetGCPercent(400) // the heap is small
	os.Exit(m.Run())
}

// play runs a scenario.
func play(t *testing.T, c *scenario) *world {
	t.Helper()
	w := &world{scenario: c}
	done := make(chan struct{})
	defer close(done)
	go w.watchTime(done)
	synctest.Test(t, func(t *testing.T) {
		w.start(t)
		w.run()
	})
	return w
}

// A run takes less than a second of CPU time, and less than a minute on a busy machine. In a longer one
// a goroutine never waits, or waits for a mutex, so the simulated time stands still. maxTicks is a
// number of seconds in which the machine was not suspended.
const maxCPUTime, maxTicks = time.Minute, 1200

// watchTime panics with a report if the simulated time stands still.
func (w *world) watchTime(done <-chan struct{}) {
	ticker, began := time.NewTicker(time.Second), cpuTime()
	defer ticker.Stop()
	for range maxTicks {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		if cpuTime()-began > maxCPUTime {
			break
		}
	}
	w.mu.TryLock() // if it is locked, the report may be incomplete
	w.failures = append(w.failures, "the simulated time stands still")
	panic(w.report())
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	panicOn(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// shrink returns a failed run with as few of its faults as possible: without any other fault, no
// invariant is violated.
func shrink(t *testing.T, w *world) *world {
	t.Helper()
	for i := 0; i < len(w.faults); {
		c := *w.scenario
		c.faults = slices.Delete(slices.Clone(c.faults), i, i+1)
		if smaller := play(t, &c); len(smaller.failures) > 0 {
			w = smaller
		} else {
			i++
		}
	}
	return w
}

// report describes a run.
func (w *world) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, trace %x: SLUICE_SEED=%[1]d go test ./e2e/simulation -run TestSimulation -v\n", w.seed, w.trace)
	for _, f := range w.failures {
		fmt.Fprintln(&b, "  violated:", f)
	}
	fmt.Fprintf(&b, "  %d sluices, %d envoys, shared store %t (%s), fallback %s, store timeout %v, call timeout %v\n",
		len(w.replicas), len(w.envoys), w.shared, w.topology, w.fallback, w.storeTimeout, w.callTimeout)
	for line := range strings.Lines(w.rules) {
		b.WriteString("  | " + line)
	}
	for _, f := range w.faults {
		fmt.Fprintln(&b, "  fault", f)
	}
	for _, a := range w.attacks {
		fmt.Fprintln(&b, "  attack", a)
	}
	events := w.last
	if !keepTrace {
		events = events[max(0, len(events)-lastEvents):]
	}
	for _, line := range events {
		fmt.Fprintln(&b, "  ", line)
	}
	return b.String()
}

// TestSimulation plays the scenarios of many seeds.
func TestSimulation(t *testing.T) {
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		must.OK(t, err)
		w := play(t, newScenario(seed))
		t.Log(w.report())
		if len(w.failures) > 0 {
			t.Fail()
		}
		return
	}
	last := cmp.Or(*lastSeed, uint64(effort.Times(t, 20)))
	for seed := *firstSeed; seed <= last && !t.Failed(); seed++ {
		if seed%500 == 0 {
			t.Log("seed", seed)
		}
		if w := play(t, newScenario(seed)); len(w.failures) > 0 {
			t.Error(shrink(t, w).report())
		}
	}
}
