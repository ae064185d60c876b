package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// maxGCPercent lets the heap grow to five times its live size before a collection. The live heap is
// a few megabytes, since counters are not in it. With grpc-go, a collection at each doubling would
// take a fifth of the CPU time; the built-in transport leaves hardly any garbage.
//
// Five times the memory of ten thousand connections, or of a hostile one, would be gigabytes, so
// the heap grows by at most maxHeapGrowth, or by half if that is more. For a live heap of 4 MiB both
// bounds are equal. Fifty hostile connections, which use 15 MiB, then take about 32 MiB.
const (
	maxGCPercent  = 400
	minGCPercent  = 50
	maxHeapGrowth = 16 << 20
)

// gcPercent returns the value of GOGC for a live heap of inUse bytes.
func gcPercent(inUse uint64) int {
	return int(max(minGCPercent, min(maxGCPercent, maxHeapGrowth*100/max(inUse, 1))))
}

// TuneGC adjusts GOGC to the live heap, now and after each collection, unless the variable GOGC is
// set. Call it once.
func TuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(maxGCPercent)
	afterEachGC(func() bool {
		samples := []metrics.Sample{
			{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/gogc:percent"},
		}
		metrics.Read(samples)
		want := gcPercent(samples[0].Value.Uint64() + samples[1].Value.Uint64())
		// Setting it stops the world briefly, so ignore small differences.
		if now := int(samples[2].Value.Uint64()); want < now*9/10 || want > now*11/10 {
			debug.SetGCPercent(want)
		}
		return true
	})
}

// afterEachGC calls f after each garbage collection until f returns false. It needs no goroutine: f
// is called by the finalizer of an unreachable object.
func afterEachGC(f func() bool) {
	type garbage struct{ _ [16]byte } // smaller objects share an allocation with others
	var collected func(*garbage)
	collected = func(g *garbage) {
		if f() {
			runtime.SetFinalizer(g, collected)
		}
	}
	runtime.SetFinalizer(new(garbage), collected)
}
