package division_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestMutantsAreFound injects typical bugs into dividers and checks that random worlds detect them.
func TestMutantsAreFound(t *testing.T) {
	plain, peers := worldOptions{envoys: 3, buckets: 1}, worldOptions{envoys: 3, buckets: 1, peers: true}
	restarts := worldOptions{envoys: 3, buckets: 1, restarts: true, o: division.Options{Strict: true}}
	for name, tt := range map[string]struct {
		world worldOptions
		mutation
	}{
		"none":                      {plain, mutation{}},
		"none, with peers":          {peers, mutation{}},
		"drops lost rates":          {plain, mutation{afterClosed: func(w *world, _ division.StreamID, _ uint64) { w.d.ForgetLost() }}},
		"ignores unconfirmed rates": {plain, mutation{afterTake: func(w *world, _ division.StreamID, _ uint64) { w.d.ForgetUnconfirmed() }}},
		"confirms at once":          {plain, mutation{afterTake: func(w *world, stream division.StreamID, seq uint64) { w.d.Confirm(w.clock(), stream, seq) }}},
		"clock ahead":               {plain, mutation{early: 100 * time.Millisecond}},
		"ignores its predecessor":   {restarts, mutation{fresh: true}},
		"one peer for all Envoys":   {plain, mutation{onePeer: true}},
	} {
		t.Run(name, func(t *testing.T) {
			want := tt.afterClosed != nil || tt.afterTake != nil || tt.early > 0 || tt.fresh || tt.onePeer
			seeds := uint64(3000)
			if !want {
				seeds = min(seeds, uint64(effort.Times(t, 300)))
			}
			for seed := range seeds {
				if _, wrong := run(tt.world, tt.mutation, 400, rand.New(rand.NewPCG(seed, 1)).IntN); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					if !want {
						t.Errorf("a correct divider fails")
					}
					return
				}
			}
			if want {
				t.Error("the bug is not detected")
			}
		})
	}
}
