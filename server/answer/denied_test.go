package answer

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestDeniedRequestAllocatesNothing holds it for clients that are known and for new ones, in each mode.
func TestDeniedRequestAllocatesNothing(t *testing.T) {
	requests := userRequests(t, 2000)
	for _, mode := range []string{live.Off, live.Hashed, live.Clear} {
		s := benchService(t, Settings{TopKeys: mode}, deniedRules)
		x := &Exchange{}
		i := 0
		ask := func() {
			if _, _, err := s.Answer(benchNow, 0, x, requests[i%len(requests)]); err != nil {
				t.Fatal(err)
			}
			i++
		}
		ask() // memory grows
		if n := testing.AllocsPerRun(1000, ask); n != 0 {
			t.Errorf("%s: %v allocations, want 0", mode, n)
		}
	}
}

// TestDeniedDescriptorsOfAList has each of two limits deny a request. It counts once among those of the domain, and each of
// the two keys has a share of all.
func TestDeniedDescriptorsOfAList(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limits: [{requests_per_unit: 0, unit: minute}, {requests_per_unit: 0, unit: day}]}]}")
	for i := range 3 {
		now := time.Unix(0, int64(r.now)).Add(time.Duration(i) * 5 * time.Second)
		r.service.Tick(now)
		for range 50 {
			r.ask()
		}
		d := r.service.State(now, AllRules).Domains[0]
		if len(d.DeniedKeys) != 2 || d.DeniedKeys[0].Share != 1 || d.DeniedKeys[1].Share != 1 || d.DeniedRequests != d.DeniedKeys[0].PerSecond {
			t.Errorf("%v denied a second, by the keys %+v, want two keys with all of them", d.DeniedRequests, d.DeniedKeys)
		}
	}
}
