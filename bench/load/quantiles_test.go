package load

import (
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var d []time.Duration
	for i := range 1001 { // 0 to 1000 µs, unordered
		d = append(d, time.Duration(i*17%1001)*time.Microsecond)
	}
	if got, want := quantiles(d), (Quantiles{500, 900, 990, 999, 1000}); got != want {
		t.Errorf("quantiles of 0..1000 µs = %v, want %v", got, want)
	}
	if got, want := quantiles([]time.Duration{1500}), (Quantiles{1.5, 1.5, 1.5, 1.5, 1.5}); got != want {
		t.Errorf("quantiles of one = %v, want %v", got, want)
	}
	if got := quantiles(nil); got != (Quantiles{}) {
		t.Errorf("quantiles of none = %v, want zeros", got)
	}
}
