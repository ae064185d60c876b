package load

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var d []time.Duration
	for i := range 1001 {
		d = append(d, time.Duration(i)*time.Microsecond)
	}
	if p50, p99 := quantile(d, .5), quantile(d, .99); p50 != 500 || p99 != 990 || quantile(d[:2], .99) != 0 || quantile(nil, .5) != 0 {
		t.Errorf("quantiles of 0 to 1000 µs are %v and %v", p50, p99)
	}
}
