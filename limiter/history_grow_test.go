package limiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestHistoriesGrow checks that counters are exact while their size class grows, shrinks because
// another class takes its memory, and grows again.
func TestHistoriesGrow(t *testing.T) {
	const otherCounters = 24
	week := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: 7 * 24 * time.Hour}
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(g.model, true)
			grown, evicted := false, 0
			tries := histories(t) / 4
			for n := range tries {
				tab, rec := sizedTable(t, 32<<10), &recorder{}
				policy := g.policies[r.IntN(len(g.policies))]
				now := epoch + limiter.Time(r.Int64N(int64(g.span)))
				// Two one-word counters must not have equal words: a slot that changes its owner
				// twice could then look unchanged; see Table.insert. So the test has only one.
				counters, oneWord := 4, limiter.CounterBytes(*policy) == 16
				if oneWord {
					counters = 1
				}
				var plan [][]op
				for range clients - 1 {
					var part []op
					for range opsAClient {
						part = append(part, op{
							counter: r.IntN(counters), now: now, hits: uint64(r.IntN(3)), policy: policy, budget: time.Minute,
						})
					}
					plan = append(plan, part)
				}
				var others []op
				for s := range otherCounters {
					o := op{counter: counters + s, now: now, hits: 1, policy: policy}
					if oneWord {
						o.policy, o.hits = &week, uint64(s+1)
					}
					others = append(others, o)
				}
				before := tab.Stats().Used
				rec.race(tableTurn(t, r), r, spreadOut{tab}, append(plan, others))
				grown = grown || tab.Stats().Used > before
				if tab.Stats().Evicted > 0 {
					// A writer that is suspended by a hook keeps its block from being split, so
					// that other counters are evicted.
					evicted++
					continue
				}
				kept := slices.DeleteFunc(rec.ops, func(o porcupine.Operation) bool { return as[op](o.Input).counter >= counters })
				if !porcupine.CheckOperations(check, kept) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(kept))
				}
			}
			if evicted > tries/2 && effort.Level(t) >= effort.More { // with fewer histories chance is too large
				t.Errorf("%d of %d histories have evictions", evicted, tries)
			}
			if !grown {
				t.Error("no size class has grown")
			}
		})
	}
}

// A spreadOut is a table whose counters do not share blocks, unlike those of counterID.
type spreadOut struct{ *limiter.Table }

func (s spreadOut) Decide(now limiter.Time, b *limiter.Batch) {
	for i := range b.Charges {
		h := identity.Key{}.Hasher()
		h.AddWord(b.Charges[i].ID.Hi)
		b.Charges[i].ID = h.Sum()
	}
	s.Table.Decide(now, b)
}
