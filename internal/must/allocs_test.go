package must_test

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var sink []byte

// A rare allocation does not count, one in each call does.
func TestAllocsPerRun(t *testing.T) {
	for name, tt := range map[string]struct{ of, want int }{"never": {0, 0}, "in a few calls": {4, 0}, "always": {100, 1}} {
		calls := 0
		if n := must.AllocsPerRun(200, func() {
			if calls++; calls%100 < tt.of {
				sink = make([]byte, 100)
			}
		}); int(n) != tt.want {
			t.Errorf("%s: %v, want %d", name, n, tt.want)
		}
	}
}
