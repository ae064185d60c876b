package division_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestWorldDiversity checks that random worlds are not trivial: most of the limit is often
// assigned, to one or several Envoys, and buckets are abandoned, probed and inherited.
func TestWorldDiversity(t *testing.T) {
	var checks, full, shared int
	var counts division.Counts
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(worldOptions{envoys: 3, buckets: 1, peers: true}.withDefaults())
		for range 400 {
			w.step(r.IntN)
			assigned := 0
			for _, e := range w.envoys {
				if b := e.buckets[0]; b.Active(w.now) && b.Rate > 0 {
					assigned++
				}
			}
			checks++
			if w.rateInEffect(0) > 200_000 {
				full++
			}
			if assigned > 1 {
				shared++
			}
		}
		c := w.d.Counts()
		counts.Abandoned += c.Abandoned
		counts.Probed += c.Probed
		counts.Inherited += c.Inherited
	}
	t.Logf("more than half is in effect %d times of %d, at several Envoys %d times; %+v", full, checks, shared, counts)
	if full < checks/8 || shared < checks/20 || counts.Abandoned == 0 || counts.Probed == 0 || counts.Inherited == 0 {
		t.Error("the worlds are too uniform to test anything")
	}
}

// FuzzWorld lets the fuzzer choose the events of a world.
func FuzzWorld(f *testing.F) {
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) == 0 {
			return
		}
		o := worlds[int(choices[0])%len(worlds)]
		at, steps := 0, 0
		choose := func(n int) int {
			if at++; at >= len(choices) {
				return 0
			}
			return int(choices[at]) % n
		}
		play := func() (*world, string) {
			w := newWorld(o.withDefaults())
			for at, steps = 0, 0; at < len(choices) && steps < 5000; steps++ {
				w.step(choose)
				if wrong := w.check(); wrong != "" {
					return w, wrong
				}
			}
			return w, ""
		}
		if _, wrong := play(); wrong != "" {
			o.verbose = true
			w, _ := play()
			t.Fatalf("%s\n%s", wrong, strings.Join(w.log, "\n"))
		}
	})
}
