package process

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// ScaleByLoad multiplies d by the number of runnable processes per processor. The result is at
// least d, and at most the larger of a minute and d. It is for waits that must be short on an idle
// machine and longer on a busy one. Without /proc it returns d.
func ScaleByLoad(d time.Duration) time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // the load is 0 on an error
	}
	each := max(1, load/float64(runtime.NumCPU()))
	return max(d, min(time.Duration(each*float64(d)), time.Minute))
}
