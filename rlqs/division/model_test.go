package division_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

var worlds = []worldOptions{
	{envoys: 2, buckets: 1},
	{envoys: 2, buckets: 1, peers: true, allow: true},
	{envoys: 3, buckets: 2, limitChanges: true},
	{envoys: 3, buckets: 2, limitChanges: true, peers: true, allow: true},
	{envoys: 3, buckets: 1, restarts: true},
	{envoys: 3, buckets: 2, restarts: true, peers: true},
	{envoys: 12, buckets: 1, peers: true},
	{envoys: 20, buckets: 1, limitChanges: true},
	{envoys: 3, buckets: 2, limitChanges: true, peers: true, o: division.Options{MaxLate: 500 * time.Millisecond}},
	{envoys: 4, buckets: 2, limitChanges: true, peers: true, silent: 2},
	{envoys: 5, buckets: 3, limitChanges: true, clients: 2, o: division.Options{TickShares: 1}},
	{envoys: 14, buckets: 1, limitChanges: true, silent: 3, clients: 3, o: division.Options{TickShares: 4}},
}

func (o worldOptions) withDefaults() worldOptions {
	if o.o.MaxLate == 0 {
		o.o.MaxLate = -1
	}
	o.o.IdleReports = 2
	return o
}

// run advances a world by some steps and returns the first violation.
func run(o worldOptions, steps int, choose chooser) (*world, string) {
	w := newWorld(o.withDefaults())
	for range steps {
		w.step(choose)
		if wrong := w.check(); wrong != "" {
			return w, wrong
		}
	}
	return w, w.checkQuiescence()
}

// checkQuiescence lets time pass without events. It returns a description of an error, "" if there
// is none. Each scheduled division must change something, so that after a while none is scheduled.
func (w *world) checkQuiescence() string {
	shares := w.d.Counts().Shares + len(w.envoys)
	begun, end := w.d.Counts().Divisions, w.now+5*division.TTL
	for w.now < end {
		w.logf("quiet")
		if next := w.d.Tick(w.now); next > w.now {
			w.now = max(next, w.now+time.Microsecond)
		}
		if divided := w.d.Counts().Divisions - begun; divided > uint64(8*shares+4*len(w.limits)) {
			return fmt.Sprintf("%d divisions of %d shares without an event", divided, shares)
		}
	}
	for range 4 * shares {
		w.d.Tick(w.now)
	}
	if next := w.d.Tick(w.now); w.o.MaxLate < 0 && next < w.now+time.Minute {
		return fmt.Sprintf("without an event, a division is scheduled in %v", next-w.now)
	}
	return w.d.CheckInvariants()
}

func TestRandomWorlds(t *testing.T) {
	seeds := uint64(effort.Times(t, 150))
	if effort.Level(t) >= effort.All {
		seeds = 50_000
	}
	for n, o := range worlds {
		for seed := range seeds {
			play := func(o worldOptions) (*world, string) {
				return run(o, 400, rand.New(rand.NewPCG(seed, uint64(n))).IntN)
			}
			if _, wrong := play(o); wrong != "" {
				o.verbose = true
				w, _ := play(o)
				t.Fatalf("world %d, seed %d: %s\n%s", n, seed, wrong, strings.Join(w.log, "\n"))
			}
		}
	}
}
