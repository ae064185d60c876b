package limiter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRefundOfChargedHits checks that a client that refunds Charged gains nothing, also if
// denied hits count, counts saturate, debt is capped or a log is full.
func TestRefundOfChargedHits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	amounts := []uint64{1, 2, 3, 5, 40, 1 << 20, math.MaxUint32, math.MaxUint64}
	for n := range 3000 {
		p := oraclePolicies[n%len(oraclePolicies)][0]
		p.CountRefused = n%4 != 0
		tab, now := newTable(t, MinBytes), hour0
		hit := func(c Charge) Decision {
			c.ID, c.Policy = counterID(1), &p
			b := &Batch{Charges: []Charge{c}, Budget: time.Minute}
			if r.IntN(2) == 0 && !c.Refund && c.Hits > 0 { // denied by another counter
				b.Charges = append(b.Charges, oneHit(counterID(2), perMinute(0)))
			}
			tab.Decide(now, b)
			return b.Decisions[0]
		}
		for range r.IntN(6) { // other charges
			hit(Charge{Hits: amounts[r.IntN(len(amounts))]})
			now += Time(r.Int64N(int64(p.Window) / 2))
		}
		before := hit(Charge{})
		var charged []uint64
		for range 1 + r.IntN(4) {
			charged = append(charged, hit(Charge{Hits: amounts[r.IntN(len(amounts))]}).Charged)
		}
		if p.Algorithm == LeakyBucket && hit(Charge{}).Before > uint64(p.Slack)+1 {
			continue // refunds of delayed hits are ignored
		}
		for _, hits := range charged {
			hit(Charge{Hits: hits, Refund: true})
		}
		after := hit(Charge{})
		if after.Before < before.Before || after.Remaining > before.Remaining || after.Before == before.Before && after.Reset < before.Reset {
			t.Fatalf("%+v: %d were charged and refunded:\nbefore %+v\n after %+v", p, charged, before, after)
		}
		if slices.Max(charged) > before.Remaining && !p.CountRefused {
			t.Fatalf("%+v: charged %d with %d remaining", p, charged, before.Remaining)
		}
	}
}
