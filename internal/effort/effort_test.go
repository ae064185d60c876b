package effort_test

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		level string
		want  int
	}{{"", 3}, {"1", 3}, {"10", 30}, {"100", 300}} {
		t.Setenv("SLUICE_EFFORT", tt.level)
		if got := effort.Times(t, 3); got != tt.want {
			t.Errorf("SLUICE_EFFORT=%s: %d times, want %d", tt.level, got, tt.want)
		}
	}
}
