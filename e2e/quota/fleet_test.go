package quota_test

import (
	"context"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

// attempt is a request that was sent to an Envoy.
type attempt struct {
	at     time.Duration
	envoy  int
	passed bool
}

// TestFleet plays what three Envoys got, request by request, to three of the model, with demand that is even, skewed and
// shifted. In each part about as many pass. It takes minutes and a machine of its own: set SLUICE_LONG=1.
func TestFleet(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("SLUICE_LONG is not set: what real Envoys let pass depends on when a busy machine lets them")
	}
	const n, part = 3, 30 * time.Second
	s := play(t, hundredASecond, n)
	s.awaitShares(t, "al")
	parts := []struct {
		name string
		rate [n]float64 // a second
	}{
		{"even", [n]float64{100, 100, 100}},
		{"skewed", [n]float64{180, 10, 10}},
		{"shifted", [n]float64{10, 10, 180}},
		{"less than the limit", [n]float64{30, 10, 40}},
	}
	var mu sync.Mutex
	var all []attempt
	for _, p := range parts {
		ctx, cancel := context.WithTimeout(t.Context(), part)
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
					passed := s.ask(t.Context(), t, i, "al")
					mu.Lock()
					all = append(all, attempt{at, i, passed})
					mu.Unlock()
				}
			})
		}
		load.Wait()
		cancel()
	}
	slices.SortFunc(all, func(a, b attempt) int { return int(a.at - b.at) })
	limit := &quota.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond, MinTokens: 4}
	fleet, begun := filter.NewFleet(n, false), all[0].at
	var envoys, model [4]int
	for _, a := range all {
		at := a.at - begun
		passed := fleet.Request(at, a.envoy, quota.Bucket{1}, limit)
		if at%part < part/3 { // until both have shares of the new demand
			continue
		}
		i := min(int(at/part), len(parts)-1)
		if a.passed {
			envoys[i]++
		}
		if passed {
			model[i]++
		}
	}
	for i, p := range parts {
		t.Logf("%s: real Envoys let %d pass, the model %d", p.name, envoys[i], model[i])
		if most := 100 * (part - part/3).Seconds(); math.Abs(float64(envoys[i]-model[i])) > 0.05*most {
			t.Errorf("%s: real Envoys let %d pass and the model %d, of %g", p.name, envoys[i], model[i], most)
		}
	}
}
