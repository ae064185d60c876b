package quota_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// change is when demand moves, and simulations end a minute later.
const change = time.Minute

// used are the ways in which demand is spread, and what is to be used of min(demand, R) from one time to
// another. Where goal is 0 the figure is only logged.
var used = []struct {
	name     string
	demand   func(i, n int, moved bool) float64 // of all demand
	dies     bool                               // the first Envoy, when demand moves
	from, to time.Duration                      // after the change
	goal     float64
}{
	{name: "even", demand: even, to: 59 * time.Second, goal: 0.97},
	{name: "90/10", demand: skewed, to: 59 * time.Second, goal: 0.97},
	{name: "full shift, 6 s later", demand: func(i, n int, moved bool) float64 {
		switch half := n / 2; {
		case i < half == moved:
			return 0
		case i < half:
			return 1 / float64(half)
		default:
			return 1 / float64(n-half)
		}
	}, from: 6 * time.Second, to: 8 * time.Second, goal: 0.9},
	{name: "90/10 to 10/90, 6 s later", demand: func(i, n int, moved bool) float64 {
		if moved {
			i = n - 1 - i
		}
		return skewed(i, n, moved)
	}, from: 6 * time.Second, to: 8 * time.Second, goal: 0.88},
	{name: "one dies, TTL + 1 s later", demand: func(i, n int, moved bool) float64 {
		if moved {
			return even(i, n-1, moved)
		}
		return even(i, n, moved)
	}, dies: true, from: 13 * time.Second, to: 18 * time.Second, goal: 0.97},
	{name: "one joins, at once", demand: func(i, n int, moved bool) float64 {
		switch {
		case moved:
			return even(i, n, moved)
		case i == 0:
			return 0
		}
		return even(i, n-1, moved)
	}, to: 6 * time.Second},
}

func even(_, n int, _ bool) float64 { return 1 / float64(n) }

func skewed(i, n int, _ bool) float64 {
	if i == 0 {
		return 0.9
	}
	return 0.1 / float64(n-1)
}

// TestUtilization checks the used part of a limit in simulations in which Envoys report in different orders.
func TestUtilization(t *testing.T) {
	for _, tt := range []struct {
		rate   uint64
		burst  time.Duration
		chance bool
	}{
		{1000, 100 * time.Millisecond, false},
		{1000, 100 * time.Millisecond, true},
		{1000, 300 * time.Millisecond, true},
		{100, 100 * time.Millisecond, false},
		{100, 100 * time.Millisecond, true},
	} {
		if tt.chance && os.Getenv("SLUICE_LONG") == "" {
			continue
		}
		limit := quota.Limit{Hits: tt.rate, Window: time.Second, Burst: tt.burst}
		for _, n := range []int{2, 5, 10} {
			for spread := range used {
				for _, load := range []float64{0.5, 0.9, 1, 1.5, 3} {
					testUtilization(t, spread, limit, n, load, tt.chance)
				}
			}
		}
	}
}

// testUtilization checks the part of a limit that n Envoys use, for a demand that is a multiple of it and a distribution of
// it.
func testUtilization(t *testing.T, spread int, limit quota.Limit, n int, load float64, chance bool) {
	t.Helper()
	turns := 4
	if testing.Short() {
		turns = 1
	}
	tt, rate := used[spread], float64(limit.Hits)
	name := fmt.Sprintf("R %.0f, burst %v, %s, %d Envoys, demand %.1f R, %s",
		rate, limit.Burst, map[bool]string{false: "fluid", true: "chance"}[chance], n, load, tt.name)
	var part, second, five []float64
	for turn := range turns {
		s := simulation{
			n: n, limit: limit, end: 2 * change, phase: phases(n, turn),
			demand: func(i int, at time.Duration) float64 { return rate * load * tt.demand(i, n, at >= change) },
			dies:   func(i int, at time.Duration) bool { return tt.dies && i == 0 && at >= change },
		}
		if chance {
			s.chance = rand.New(rand.NewPCG(uint64(turn), 1))
		}
		r := s.run(t)
		for _, interval := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
			if beyond := r.beyond(interval, rate); beyond > 1e-6*rate {
				t.Errorf("%s: %.2f beyond the bound in %v", name, beyond, interval)
			}
		}
		part = append(part, r.used(change+tt.from, change+tt.to))
		second = append(second, r.most(20*time.Second, time.Second, rate))
		five = append(five, r.most(20*time.Second, 5*time.Second, rate))
	}
	least := slices.Min(part)
	t.Logf("%s: used %.3f; most in 1 s %.2f R, in 5 s %.2f R", name, least, slices.Max(second), slices.Max(five))
	if !chance && least < tt.goal {
		t.Errorf("%s: used %.3f, want %.2f", name, least, tt.goal)
	}
}

// TestRestart holds that a service which is killed and away for four seconds changes nothing: its
// assignments go on, and its successor leaves them as they are until it knows of all. Nor do streams
// that end and are begun anew by peers that are known. Peers that are not go on with what they have, and
// are answered once that has ended.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name               string
		killed, peers      bool
		worst, least, most float64 // used in the worst second, and in all; most in five seconds
	}{
		{"killed", true, false, 0.97, 0.98, 1.02},
		{"streams end", false, true, 0.97, 0.98, 1.02},
		{"streams of unknown peers end", false, false, 0.55, 0.95, 1.25},
	} {
		for _, spread := range []func(i, n int, moved bool) float64{even, skewed} {
			for _, n := range []int{2, 5, 10} {
				for _, load := range []float64{0.5, 1, 1.5, 3} {
					worst, least, most := 1.0, 1.0, 0.0
					for turn := range 4 {
						s := simulation{
							n: n, limit: quota.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
							end: 90 * time.Second, phase: phases(n, turn), peers: tt.peers,
							demand: func(i int, _ time.Duration) float64 { return 1000 * load * spread(i, n, false) },
						}
						if tt.killed {
							s.killed, s.back = change, change+4*time.Second
						} else {
							s.broken = change
						}
						r := s.run(t)
						least, most = min(least, r.used(change, 85*time.Second)), max(most, r.most(change, 5*time.Second, 1000))
						for from := change; from < 85*time.Second; from += time.Second {
							worst = min(worst, r.used(from, from+time.Second))
						}
					}
					t.Logf("%s, %d Envoys, demand %.1f R: used %.3f, in the worst second %.3f; most in 5 s %.2f R", tt.name, n, load, least, worst, most)
					if least < tt.least || worst < tt.worst || most > tt.most {
						t.Errorf("%s, %d Envoys, demand %.1f R: used %.3f, in the worst second %.3f; most in 5 s %.2f R", tt.name, n, load, least, worst, most)
					}
				}
			}
		}
	}
}

// TestConfirmedByReports logs what is used where nothing but the second report tells that actions have
// arrived, and holds what must be so even then.
func TestConfirmedByReports(t *testing.T) {
	for _, n := range []int{2, 5, 10} {
		for _, tt := range used {
			for _, load := range []float64{0.5, 1, 3} {
				s := simulation{
					n: n, limit: quota.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
					end: 2 * change, phase: phases(n, 1), byReports: true,
					demand: func(i int, at time.Duration) float64 { return 1000 * load * tt.demand(i, n, at >= change) },
					dies:   func(i int, at time.Duration) bool { return tt.dies && i == 0 && at >= change },
				}
				r := s.run(t)
				late, from := r.used(change+40*time.Second, change+59*time.Second), change
				for at := change; at < 100*time.Second; at += time.Second {
					if r.used(at, at+time.Second) < 0.9 {
						from = at + time.Second
					}
				}
				t.Logf("%d Envoys, demand %.1f R, %s: used 0.9 from %v later on, %.3f after 40 s", n, load, tt.name, from-change, late)
				if late < 0.97 {
					t.Errorf("%d Envoys, demand %.1f R, %s: used %.3f 40 s later", n, load, tt.name, late)
				}
			}
		}
	}
}

// phases returns when Envoys report, each turn another order.
func phases(n, turn int) func(int) time.Duration {
	return func(i int) time.Duration {
		at := time.Duration((i*n/2+i*7+turn*3)%n) * 5 * time.Second / time.Duration(n)
		return (at + time.Duration(turn)*620*time.Millisecond).Truncate(simStep) % (5 * time.Second)
	}
}
