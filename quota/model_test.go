package quota_test

import (
	"fmt"
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
	{envoys: 3, buckets: 2, relimits: true, peers: true, o: quota.Options{MaxLate: 500 * time.Millisecond}},
	{envoys: 4, buckets: 2, relimits: true, peers: true, silent: 2},
	{envoys: 5, buckets: 3, relimits: true, clients: 2, o: quota.Options{TickShares: 1}},
	{envoys: 14, buckets: 1, relimits: true, silent: 3, clients: 3, o: quota.Options{TickShares: 4}},
}

func (o worldOptions) ready() worldOptions {
	if o.o.MaxLate == 0 {
		o.o.MaxLate = -1
	}
	o.o.TTL, o.o.ExpiryMargin, o.o.IdleReports = 12*time.Second, 500*time.Millisecond, 2
	return o
}

// run advances a world by some steps and returns the first violation.
func run(o worldOptions, m mistake, steps int, choose chooser) (*world, string) {
	w := newWorld(o.ready(), m)
	for range steps {
		w.step(choose)
		if wrong := w.check(); wrong != "" {
			return w, wrong
		}
	}
	return w, w.quiet()
}

// quiet has nothing happen any more. It returns what is wrong, "" if nothing is: all that is planned then changes something,
// and soon nothing is planned.
func (w *world) quiet() string {
	shares := w.d.Counts().Shares + len(w.envoys)
	begun, end := w.d.Counts().Divisions, w.now+5*w.o.TTL
	for w.now < end {
		w.note("quiet")
		if next := w.d.Tick(w.at()); next > w.at() {
			w.now = max(w.now+next-w.at(), w.now+time.Microsecond)
		}
		if divided := w.d.Counts().Divisions - begun; divided > uint64(8*shares+4*len(w.limits)) {
			return fmt.Sprintf("%d divisions of %d shares without an event", divided, shares)
		}
	}
	for range 4 * shares {
		w.d.Tick(w.at())
	}
	if next := w.d.Tick(w.at()); w.o.MaxLate < 0 && next < w.at()+time.Minute {
		return fmt.Sprintf("something is planned in %v without an event", next-w.at())
	}
	return w.d.Broken()
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
