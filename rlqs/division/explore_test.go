package division_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// event is something that can happen in a world. It returns false if it cannot happen now.
type event func(w *world) bool

// events returns the events of a world of two Envoys and one bucket.
func events() []event {
	var all []event
	for i := range 2 {
		link := func(w *world) *link { return w.envoys[i].link }
		all = append(
			all,
			func(w *world) bool { // an Envoy has many requests and reports them
				e := w.envoys[i]
				if e.link == nil || e.buckets[0].Known && e.buckets[0].Reported == w.now {
					return false
				}
				w.request(e, 0, 500)
				w.report(e)
				return true
			},
			func(w *world) bool { // a report or a confirmation arrives
				l := link(w)
				if l == nil || !l.atServer || len(l.up) == 0 {
					return false
				}
				l.up[0]()
				l.up = l.up[1:]
				w.d.Tick(w.now)
				return true
			},
			func(w *world) bool { // actions are taken and sent
				l := link(w)
				if l == nil || !l.atServer {
					return false
				}
				written := len(l.down)
				w.takeActions(l, 10)
				return len(l.down) > written
			},
			func(w *world) bool { // actions arrive
				l := link(w)
				if l == nil || len(l.down) == 0 {
					return false
				}
				w.deliver(l)
				return true
			},
			func(w *world) bool { // the service closes the stream
				l := link(w)
				if l == nil || !l.atServer {
					return false
				}
				w.close(l)
				return true
			},
			func(w *world) bool { // the Envoy reconnects before the service notices the end
				l := link(w)
				if l == nil {
					return false
				}
				l.atEnvoy, l.down, l.e.link = false, nil, nil
				w.connect(l.e)
				return true
			},
		)
	}
	return append(
		all,
		func(w *world) bool { w.advance(5 * time.Second); return true },
		func(w *world) bool { w.advance(w.o.TTL); return true },
		func(w *world) bool {
			if w.limits[0].Hits == 20 {
				return false
			}
			w.changeLimit(0, 1)
			return true
		},
	)
}

// newStableWorld returns a world in which the given number of Envoys, one or two, have reported
// demand and share the limit.
func newStableWorld(peers bool, active int) *world {
	w := newWorld(worldOptions{envoys: 2, buckets: 1, peers: peers}.withDefaults(), mutation{})
	for _, e := range w.envoys {
		w.connect(e)
	}
	for range 6 {
		for _, e := range w.envoys[:active] {
			w.request(e, 0, 500)
			w.report(e)
		}
		for range 4 {
			for _, e := range w.envoys[:active] {
				for ; len(e.link.up) > 0; e.link.up = e.link.up[1:] {
					e.link.up[0]()
				}
				w.d.Tick(w.now)
				w.takeActions(e.link, 10)
				for len(e.link.down) > 0 {
					w.deliver(e.link)
				}
			}
		}
		w.advance(5 * time.Second)
	}
	return w
}

// TestAllOrders explores all sequences of a few events.
func TestAllOrders(t *testing.T) {
	depth := 3
	switch level := effort.Level(t); {
	case level >= effort.All:
		depth = 6
	case level >= effort.More:
		depth = 4
	}
	all, orders := events(), 0
	for _, start := range []struct {
		peers  bool
		active int
	}{{false, 2}, {true, 1}} {
		var explore func(path []int)
		explore = func(path []int) {
			for m := range all {
				w := newStableWorld(start.peers, start.active)
				for _, previous := range path {
					all[previous](w)
				}
				if !all[m](w) {
					continue
				}
				w.removeEnded()
				orders++
				if wrong := w.check(); wrong != "" {
					t.Fatalf("%+v, events %v, %d: %s", start, path, m, wrong)
				}
				if len(path)+1 < depth {
					explore(append(slices.Clip(path), m))
				}
			}
		}
		explore(nil)
	}
	t.Logf("%d sequences of up to %d events", orders, depth)
}

// TestWorldDiversity checks that random worlds are not trivial: most of the limit is often
// assigned, to one or several Envoys, and buckets are abandoned, probed and inherited.
func TestWorldDiversity(t *testing.T) {
	var checks, full, shared int
	var counts division.Counts
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(worldOptions{envoys: 3, buckets: 1, peers: true}.withDefaults(), mutation{})
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
			w := newWorld(o.withDefaults(), mutation{})
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
