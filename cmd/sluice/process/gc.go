package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// mostGCPercent lets the heap grow to five times what is live before it is collected. What
// is live is a few megabytes, since the counters are not in the heap. Over grpc-go, to
// collect at each doubling would cost a fifth of all CPU time; the built-in transport leaves hardly
// any garbage. docs/sizing.md has what 100 to 800 cost and take.
//
// Five times what ten thousand connections take, or a hostile one, would be gigabytes.
// So the heap grows by heapRoom at most, or by half where that is more. It is what a heap of 4 MiB
// has anyway: fifty hostile connections, which hold 15 MiB, then cost some 32.
const (
	maxGCPercent  = 400
	minGCPercent  = 50
	maxHeapGrowth = 16 << 20
)

// gcPercent returns how far the heap may grow, in percent of what the collector found
// in use, in bytes.
func gcPercent(inUse uint64) int {
	return int(max(minGCPercent, min(maxGCPercent, maxHeapGrowth*100/max(inUse, 1))))
}

// TuneGC sets how far the heap may grow, now and after each collection, for as
// long as the process lives. GOGC, where it is set, holds instead. Call it once.
func TuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(maxGCPercent)
	afterEachGC(func() bool {
		samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/gogc:percent"}}
		metrics.Read(samples)
		want := gcPercent(samples[0].Value.Uint64() + samples[1].Value.Uint64())
		// Setting it stops all goroutines for a moment: not for a trifle.
		if now := int(samples[2].Value.Uint64()); want < now*9/10 || want > now*11/10 {
			debug.SetGCPercent(want)
		}
		return true
	})
}

// afterEachGC calls f after each garbage collection for as long as it returns
// true. No goroutine waits meanwhile: what calls f is the finalizer of an object that
// nobody holds.
func afterEachGC(f func() bool) {
	type garbage struct{ _ [16]byte } // smaller ones share memory with others
	var collected func(*garbage)
	collected = func(g *garbage) {
		if f() {
			runtime.SetFinalizer(g, collected)
		}
	}
	runtime.SetFinalizer(new(garbage), collected)
}
