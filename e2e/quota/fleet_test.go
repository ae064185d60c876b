package quota_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

// attempt is a request that was sent to an Envoy.
type attempt struct {
	at       time.Duration
	envoy    int
	admitted bool
}

// TestFleetModel sends requests to three Envoys, with even, skewed and shifted demand, and then the
// same requests to the model in package filter. In each phase both admit about the same number. It
// takes minutes and needs an idle machine, so it runs only with SLUICE_EFFORT=100.
func TestFleetModel(t *testing.T) {
	effort.Require(t, effort.All)
	const n, phase = 3, 30 * time.Second
	s := start(t, rules100, n)
	s.awaitShares(t, "al")
	phases := []struct {
		name string
		rate [n]float64 // requests per second
	}{
		{"even", [n]float64{100, 100, 100}},
		{"skewed", [n]float64{180, 10, 10}},
		{"shifted", [n]float64{10, 10, 180}},
		{"less than the limit", [n]float64{30, 10, 40}},
	}
	var mu sync.Mutex
	var all []attempt
	for _, p := range phases {
		ctx, cancel := context.WithTimeout(t.Context(), phase)
		var load sync.WaitGroup
		for i, rate := range p.rate {
			load.Go(func() {
				tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
					at := time.Since(s.begun)
					admitted := s.request(t.Context(), t, i, "al")
					mu.Lock()
					all = append(all, attempt{at, i, admitted})
					mu.Unlock()
				}
			})
		}
		load.Wait()
		cancel()
	}
	slices.SortFunc(all, func(a, b attempt) int { return int(a.at - b.at) })
	limit := &division.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond, MinTokens: 4}
	fleet, begun := filter.NewFleet(n, false), all[0].at
	var envoys, model [4]int
	for _, a := range all {
		at := a.at - begun
		admitted := fleet.Request(at, a.envoy, division.Bucket{1}, limit)
		if at%phase < phase/3 { // until real Envoys and the model have shares for the new demand
			continue
		}
		i := min(int(at/phase), len(phases)-1)
		if a.admitted {
			envoys[i]++
		}
		if admitted {
			model[i]++
		}
	}
	for i, p := range phases {
		t.Logf("%s: real Envoys admit %d requests, the model %d", p.name, envoys[i], model[i])
		if most := 100 * (phase - phase/3).Seconds(); math.Abs(float64(envoys[i]-model[i])) > 0.05*most {
			t.Errorf("%s: real Envoys admit %d requests and the model %d, of at most %g", p.name, envoys[i], model[i], most)
		}
	}
}
