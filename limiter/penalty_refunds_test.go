package limiter

import (
	"slices"
	"testing"
)

// TestRefundsWithHitsUnderAPenalty combines refunds with hits that a penalty denies. A refund
// returns all of its hits. Hits that are offset against admitted hits in shadow mode reduce those.
func TestRefundsWithHitsUnderAPenalty(t *testing.T) {
	for name, p := range penalising(someSteps...) {
		p.Limit, p.Burst = 10, min(10*p.Burst, 10)
		p.Prepare()
		hit := func(hits uint64) Charge { return Charge{ID: counterID(1), Policy: p, Hits: hits} }
		refund := func(hits uint64) Charge { return Charge{ID: counterID(1), Policy: p, Hits: hits, Refund: true} }
		watched := hit(2)
		watched.Mode = Shadow
		for charges, want := range map[*[]Charge]struct{ refunded, counted uint64 }{
			{hit(5), refund(5)}:                     {5, 0},
			{hit(8), refund(5)}:                     {5, 0},
			{refund(5), hit(2)}:                     {5, 0},
			{hit(2), refund(4), hit(1), refund(3)}:  {7, 0},
			{watched, hit(2), refund(3)}:            {3, 2},
			{hit(1), watched, refund(4)}:            {4, 2},
			{hit(0), refund(4)}:                     {4, 0},
			{hit(3), refund(1), refund(1), hit(1)}:  {2, 0},
			{hit(1), refund(2), watched, refund(6)}: {8, 2},
		} {
			for _, grouped := range []int32{0, 1} {
				tab := newTable(t, 64<<10)
				decide(tab, benchNow, hit(10))
				exceedLimit(t, tab, benchNow, p)
				used := decide(tab, benchNow, hit(0)).Decisions[0].Before
				all := slices.Clone(*charges)
				for i := range all {
					all[i].Group = int32(i) * grouped
				}
				found := make([]State, len(all))
				stored := &Batch{Charges: all}
				stored.Stored().OffsetRefunds()
				stored.Stored().ReadStates(tab, benchNow, found)
				stored.Stored().Decide(benchNow, found)
				b := decide(tab, benchNow, slices.Clone(all)...)
				refunded := uint64(0)
				for i, d := range b.Decisions {
					if all[i].Refund {
						refunded += d.Charged
					}
					if d.Charged != stored.Decisions[i].Charged {
						t.Errorf("%s: %d hits were charged, %d with a store:\n%s", name, d.Charged, stored.Decisions[i].Charged, describe(all))
					}
				}
				counted := want.counted
				if grouped == 0 && !p.CountRefused {
					counted = 0 // the group is denied
				}
				if fallen := used - decide(tab, benchNow, hit(0)).Decisions[0].Before; refunded != want.refunded || fallen != want.refunded-counted {
					t.Errorf("%s: %d hits were refunded and usage fell by %d, want %+v:\n%s", name, refunded, fallen, want, describe(all))
				}
			}
		}
	}
}
