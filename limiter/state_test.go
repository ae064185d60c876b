package limiter_test

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestAdvanceTAT advances a TAT of 10 and 5/16 ns.
func TestAdvanceTAT(t *testing.T) {
	for to, want := range map[limiter.Time]limiter.State{
		9:  {Time: 10, Sixteenths: 5},
		10: {Time: 10, Sixteenths: 5},
		11: {Time: 11},
	} {
		got := limiter.State{Time: 10, Sixteenths: 5}
		if got.AdvanceTAT(to); got.Time != want.Time || got.Sixteenths != want.Sixteenths {
			t.Errorf("to %d: %+v, want %+v", to, got, want)
		}
	}
}
