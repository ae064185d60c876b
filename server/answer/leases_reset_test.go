package answer

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestResetsForgetLeases resets the counter of calls that are under way, in both ways, and ends them after it.
func TestResetsForgetLeases(t *testing.T) {
	for name, reset := range map[string]func(s *Service) error{
		"one descriptor": func(s *Service) error {
			e := simpleRequest().GetDescriptors()[0].GetEntries()[0]
			d := descriptors.Descriptor{Entries: []descriptors.Entry{{Key: []byte(e.GetKey()), Value: []byte(e.GetValue())}}}
			_, err := s.Counters(t.Context(), s.now(), "d", "k=v", d, true)
			return err
		},
		"denied keys": func(s *Service) error {
			_, err := s.ResetDenied(t.Context(), s.now(), live.Selection{Domain: "d"}, true)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{Clock: clock.New()}, tenSlots)
			c := &clients{t: t, service: s}
			b := s.Connect("a")
			var leases []uint64
			for lease := c.call(b, 0); lease > 0; lease = c.call(b, 0) {
				leases = append(leases, lease)
			}
			c.wantHeld(10)
			if err := reset(s); err != nil {
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
