package quota_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

var worlds = []worldOptions{
	{envoys: 2, buckets: 1},
	{envoys: 2, buckets: 1, peers: true, allow: true},
	{envoys: 3, buckets: 2, relimits: true},
	{envoys: 3, buckets: 2, relimits: true, peers: true, allow: true},
	{envoys: 3, buckets: 1, restarts: true, o: quota.Options{Strict: true}},
	{envoys: 3, buckets: 1, restarts: true, peers: true, o: quota.Options{Strict: true}},
	{envoys: 3, buckets: 2, restarts: true, peers: true},
	{envoys: 12, buckets: 1, peers: true},
	{envoys: 20, buckets: 1, relimits: true},
}

func (o worldOptions) ready() worldOptions {
	o.o.TTL, o.o.Delta, o.o.IdleReports = 12*time.Second, 500*time.Millisecond, 2
	return o
}

// run lets a world go on for some steps and returns what went wrong.
func run(o worldOptions, m mistake, steps int, choose chooser) (*world, string) {
	w := newWorld(o.ready(), m)
	for range steps {
		w.step(choose)
		if wrong := w.check(); wrong != "" {
			return w, wrong
		}
	}
	return w, ""
}

func TestRandomWorlds(t *testing.T) {
	seeds := uint64(1500)
	if os.Getenv("SLUICE_LONG") != "" {
		seeds = 50_000
	}
	for n, o := range worlds {
		for seed := range seeds {
			play := func(o worldOptions) (*world, string) {
				return run(o, mistake{}, 400, rand.New(rand.NewPCG(seed, uint64(n))).IntN)
			}
			if _, wrong := play(o); wrong != "" {
				o.verbose = true
				w, _ := play(o)
				t.Fatalf("world %d, seed %d: %s\n%s", n, seed, wrong, strings.Join(w.log, "\n"))
			}
		}
	}
}
