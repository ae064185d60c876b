package answer

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestDeniedRequestAllocatesNothing checks known and new clients, in each mode.
func TestDeniedRequestAllocatesNothing(t *testing.T) {
	requests := userRequests(t, 2000)
	for _, mode := range []string{live.Off, live.Hashed, live.Clear} {
		s := benchService(t, Settings{TopKeys: mode, DeniedBy: true}, deniedRules)
		x := &Exchange{}
		i := 0
		ask := func() {
			if _, _, err := s.Answer(benchNow, 0, x, requests[i%len(requests)]); err != nil {
				t.Fatal(err)
			}
			i++
		}
		ask() // grow the memory
		if n := must.AllocsPerRun(1000, ask); n != 0 {
			t.Errorf("%s: %v allocations, want 0", mode, n)
		}
	}
}
