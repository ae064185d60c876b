package limiter_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// singles are counters in hand, all under one policy.
type singles map[limiter.ID]*limiter.Single

func (s singles) Decide(now limiter.Time, b *limiter.Batch) {
	b.Decisions = append(b.Decisions[:0], limiter.Decision{})
	c, d := &b.Charges[0], &b.Decisions[0]
	if c.Refund {
		s[c.ID].Refund(now, c.Hits, d)
	} else {
		s[c.ID].Decide(now, c.Hits, d)
	}
}

// A counter in hand answers several clients as those in a table do.
func TestHistoriesSingle(t *testing.T) {
	for _, g := range games() {
		if g.mixed {
			continue // a counter in hand has one policy
		}
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			if g.budgets != nil {
				g.budgets = []time.Duration{time.Minute} // it knows none
			}
			check := checker(g.model, true)
			for n := range histories() {
				plan, s := g.plan(r), singles{}
				for i := range 2 {
					var err error
					if s[counterID(i)], err = limiter.NewSingle(*plan[0][0].policy); err != nil {
						t.Fatal(err)
					}
				}
				rec := &recorder{}
				rec.race(tableTurn(t, r), r, s, plan)
				if !porcupine.CheckOperations(check, rec.ops) {
					t.Fatalf("history %d could not have happened one call after another:\n%s", n, describe(rec.ops))
				}
			}
		})
	}
}
