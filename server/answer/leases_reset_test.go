package answer

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestResetsForgetLeases resets the counter of open leases, by both APIs, and returns the leases
// afterwards.
func TestResetsForgetLeases(t *testing.T) {
	for name, look := range map[string]func(*Active) *Lookup{
		"one descriptor": func(a *Active) *Lookup { return a.Lookup("d", descriptorOf("k", "v")) },
		"denied keys": func(a *Active) *Lookup {
			c := a.service.live.Select(live.Selection{Domain: "d"})[0]
			return a.LookupCharge(0, limiter.Charge{ID: c.ID, Policy: c.Policy}, c.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{Clock: clock.New()}, tenPermits)
			c := &clients{t: t, service: s}
			b := s.Connect("a")
			var leases []uint64
			for lease := c.call(b, 0); lease > 0; lease = c.call(b, 0) {
				leases = append(leases, lease)
			}
			c.wantHeld(10)
			a, err := s.Active()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := look(a).Reset(t.Context(), s.now(), 0); err != nil {
				t.Fatal(err)
			}
			c.wantHeld(0)
			lease := c.call(b, 0)
			for _, old := range leases {
				c.call(b, old)
			}
			c.wantHeld(1)
			c.call(b, lease)
			c.wantHeld(0)
		})
	}
}
