package quota_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// Mutants are dividers with typical mistakes. They show that worlds detect them.
func TestMutantsAreFound(t *testing.T) {
	plain, peers := worldOptions{envoys: 3, buckets: 1}, worldOptions{envoys: 3, buckets: 1, peers: true}
	restarts := worldOptions{envoys: 3, buckets: 1, restarts: true, o: quota.Options{Strict: true}}
	for name, tt := range map[string]struct {
		world worldOptions
		mistake
	}{
		"none":               {plain, mistake{}},
		"none, with peers":   {peers, mistake{}},
		"forgets lost":       {plain, mistake{afterClosed: func(w *world, _ quota.StreamID, _ uint64) { w.d.ForgetLost() }}},
		"raises at once":     {plain, mistake{afterTake: func(w *world, _ quota.StreamID, _ uint64) { w.d.ForgetUnconfirmed() }}},
		"confirms by itself": {plain, mistake{afterTake: func(w *world, h quota.StreamID, seq uint64) { w.d.Confirm(w.at(), h, seq) }}},
		"clock ahead":        {plain, mistake{early: 100 * time.Millisecond}},
		"fears nothing":      {restarts, mistake{fresh: true}},
		"peers mixed up":     {plain, mistake{onePeer: true}},
	} {
		t.Run(name, func(t *testing.T) {
			want := tt.afterClosed != nil || tt.afterTake != nil || tt.early > 0 || tt.fresh || tt.onePeer
			for seed := range uint64(3000) {
				if _, wrong := run(tt.world, tt.mistake, 400, rand.New(rand.NewPCG(seed, 1)).IntN); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					if !want {
						t.Errorf("it is right, but was found wrong")
					}
					return
				}
			}
			if want {
				t.Error("not found out")
			}
		})
	}
}
