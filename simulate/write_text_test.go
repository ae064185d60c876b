package simulate

import (
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Millisecond: "5ms", 61 * time.Second: "1m1s", 10 * time.Minute: "10m", 34*time.Minute + 10*time.Second: "34m10s", 26 * time.Hour: "1d2h00m",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}
