package process

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// ScaleByLoad returns d times the number of processes that want a processor for each there is, at least d and at most a
// minute or d. It is for times that are lost on an idle machine, and too short on a busy one. Without /proc it is d.
func ScaleByLoad(d time.Duration) time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // without a number, the load is 0
	}
	each := max(1, load/float64(runtime.NumCPU()))
	return max(d, min(time.Duration(each*float64(d)), time.Minute))
}
