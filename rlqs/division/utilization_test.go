package division_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// demandChange is the time at which demand changes. Simulations end a minute later.
const demandChange = time.Minute

// demandCases are distributions of demand over Envoys. Between the times from and to, the part goal
// of min(demand, R) must be used. If goal is 0, the part is only logged.
var demandCases = []struct {
	name     string
	demand   func(i, n int, moved bool) float64 // fraction of the total demand
	dies     bool                               // whether the first Envoy dies at the change
	from, to time.Duration                      // times after the change
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

// spread returns the fraction of the total demand at Envoy i of n.
type spread func(i, n int, moved bool) float64

func even(_, n int, _ bool) float64 { return 1 / float64(n) }

func skewed(i, n int, _ bool) float64 {
	if i == 0 {
		return 0.9
	}
	return 0.1 / float64(n-1)
}

// TestUtilization checks which fraction of a limit is used in simulations with different orders of
// reports.
func TestUtilization(t *testing.T) {
	for _, tt := range []struct {
		rate   uint64
		burst  time.Duration
		random bool
	}{
		{1000, 100 * time.Millisecond, false},
		{1000, 100 * time.Millisecond, true},
		{1000, 300 * time.Millisecond, true},
		{100, 100 * time.Millisecond, false},
		{100, 100 * time.Millisecond, true},
	} {
		if tt.random && effort.Level(t) < effort.All {
			continue
		}
		limit := division.Limit{Hits: tt.rate, Window: time.Second, Burst: tt.burst}
		for _, n := range []int{2, 5, 10} {
			for spread := range demandCases {
				for _, load := range []float64{0.5, 0.9, 1, 1.5, 3} {
					testUtilization(t, spread, limit, n, load, tt.random)
				}
			}
		}
	}
}

// testUtilization checks the fraction of a limit that n Envoys use, for a demand of load x the
// limit and a distribution of it.
func testUtilization(t *testing.T, spread int, limit division.Limit, n int, load float64, random bool) {
	t.Helper()
	orders := min(effort.Level(t), 4)
	tt, rate := demandCases[spread], float64(limit.Hits)
	name := fmt.Sprintf("R %.0f, burst %v, %s, %d Envoys, demand %.1f R, %s",
		rate, limit.Burst, map[bool]string{false: "even", true: "random"}[random], n, load, tt.name)
	var used, second, five []float64
	for order := range orders {
		s := simulation{
			n: n, limit: limit, end: 2 * demandChange, phase: phases(n, order),
			demand: func(i int, at time.Duration) float64 { return rate * load * tt.demand(i, n, at >= demandChange) },
			dies:   func(i int, at time.Duration) bool { return tt.dies && i == 0 && at >= demandChange },
		}
		if random {
			s.random = rand.New(rand.NewPCG(uint64(order), 1))
		}
		r := s.run(t)
		for _, interval := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
			if excess := r.maxExcess(interval, rate); excess > 1e-6*rate {
				t.Errorf("%s: the bound is exceeded by %.2f in %v", name, excess, interval)
			}
		}
		used = append(used, r.utilization(demandChange+tt.from, demandChange+tt.to))
		second = append(second, r.maxAdmitted(20*time.Second, time.Second, rate))
		five = append(five, r.maxAdmitted(20*time.Second, 5*time.Second, rate))
	}
	minUsed := slices.Min(used)
	t.Logf("%s: used %.3f; maximum in 1 s %.2f R, in 5 s %.2f R", name, minUsed, slices.Max(second), slices.Max(five))
	if !random && minUsed < tt.goal {
		t.Errorf("%s: used %.3f, want %.2f", name, minUsed, tt.goal)
	}
}

// TestRestart checks utilization and excess around the restart of a service that was unavailable
// for four seconds, and around the end of all streams. After a restart, assignments stay as they
// are until the successor knows all Envoys, but no Envoy keeps more than half of the limit. After the
// end of all streams, new streams of known
// peers inherit their rates. Envoys of unknown peers keep their rates until these expire, and then
// get new assignments.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name                           string
		spreads                        []spread
		killed, peers                  bool
		minWorst, minUsed, maxAdmitted float64 // used in the worst second, and overall; admitted in five seconds
	}{
		{"killed", []spread{even}, true, false, 0.97, 0.98, 1.02},
		{"killed, 90/10", []spread{skewed}, true, false, 0.59, 0.9, 1.02},
		{"streams end", []spread{even, skewed}, false, true, 0.97, 0.98, 1.02},
		{"streams of unknown peers end", []spread{even, skewed}, false, false, 0.55, 0.95, 1.25},
	} {
		for _, spread := range tt.spreads {
			for _, n := range []int{2, 5, 10} {
				for _, load := range []float64{0.5, 1, 1.5, 3} {
					worst, used, admitted := 1.0, 1.0, 0.0
					for order := range min(effort.Level(t), 4) {
						s := simulation{
							n: n, limit: division.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
							end: 90 * time.Second, phase: phases(n, order), peers: tt.peers,
							demand: func(i int, _ time.Duration) float64 { return 1000 * load * spread(i, n, false) },
						}
						if tt.killed {
							s.killedAt, s.restartedAt = demandChange, demandChange+4*time.Second
						} else {
							s.brokenAt = demandChange
						}
						r := s.run(t)
						used, admitted = min(used, r.utilization(demandChange, 85*time.Second)), max(admitted, r.maxAdmitted(demandChange, 5*time.Second, 1000))
						for from := demandChange; from < 85*time.Second; from += time.Second {
							worst = min(worst, r.utilization(from, from+time.Second))
						}
					}
					figures := fmt.Sprintf("%s, %d Envoys, demand %.1f R: used %.3f, in the worst second %.3f; maximum in 5 s %.2f R", tt.name, n, load, used, worst, admitted)
					t.Log(figures)
					if used < tt.minUsed || worst < tt.minWorst || admitted > tt.maxAdmitted {
						t.Error(figures)
					}
				}
			}
		}
	}
}

// TestConfirmedByReports logs the utilization if only the second report after an action confirms
// it, and checks the minimum after 40 s.
func TestConfirmedByReports(t *testing.T) {
	for _, n := range []int{2, 5, 10} {
		for _, tt := range demandCases {
			for _, load := range []float64{0.5, 1, 3} {
				s := simulation{
					n: n, limit: division.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
					end: 2 * demandChange, phase: phases(n, 1), byReports: true,
					demand: func(i int, at time.Duration) float64 { return 1000 * load * tt.demand(i, n, at >= demandChange) },
					dies:   func(i int, at time.Duration) bool { return tt.dies && i == 0 && at >= demandChange },
				}
				r := s.run(t)
				late, from := r.utilization(demandChange+40*time.Second, demandChange+59*time.Second), demandChange
				for at := demandChange; at < 100*time.Second; at += time.Second {
					if r.utilization(at, at+time.Second) < 0.9 {
						from = at + time.Second
					}
				}
				t.Logf("%d Envoys, demand %.1f R, %s: always used more than 0.9 after %v, %.3f after 40 s", n, load, tt.name, from-demandChange, late)
				if late < 0.97 {
					t.Errorf("%d Envoys, demand %.1f R, %s: used %.3f after 40 s, want 0.97", n, load, tt.name, late)
				}
			}
		}
	}
}

// phases returns a function that returns when an Envoy reports, within each five seconds. order
// selects one of several orders of the Envoys.
func phases(n, order int) func(int) time.Duration {
	return func(i int) time.Duration {
		at := time.Duration((i*n/2+i*7+order*3)%n) * 5 * time.Second / time.Duration(n)
		return (at + time.Duration(order)*620*time.Millisecond).Truncate(simStep) % (5 * time.Second)
	}
}
