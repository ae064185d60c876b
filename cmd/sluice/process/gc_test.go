package process

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for _, tt := range []struct {
		inUse uint64
		want  int
	}{
		{0, 400},
		{4 << 20, 400},
		{8 << 20, 200},
		{16 << 20, 100},
		{32 << 20, 50},
		{64 << 20, 50},
		{1 << 30, 50},
	} {
		if got := gcPercent(tt.inUse); got != tt.want {
			t.Errorf("gcPercent(%d MiB) = %d, want %d", tt.inUse>>20, got, tt.want)
		}
	}
}

// TestGCPercentFollowsLiveHeap allocates 64 MiB and releases them.
func TestGCPercentFollowsLiveHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	TuneGC()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	await := func(want uint64) {
		t.Helper()
		t.Logf("waiting for GOGC=%d", want)
		for percent[0].Value.Kind() == metrics.KindBad || percent[0].Value.Uint64() != want {
			runtime.GC()
			runtime.Gosched()
			metrics.Read(percent)
		}
	}
	await(400)
	live := make([]byte, 64<<20)
	await(50)
	runtime.KeepAlive(live)
	await(400)
}
