package limiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Counters are exact while their size class grows around them, and while another one takes
// its memory away and it grows again.
func TestHistoriesGrow(t *testing.T) {
	const strangers = 24
	week := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: 7 * 24 * time.Hour}
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(g.model, true)
			grown, evicted := false, 0
			tries := histories() / 4
			for n := range tries {
				tab, rec := sizedTable(t, 32<<10), &recorder{}
				policy := g.policies[r.IntN(len(g.policies))]
				now := epoch + limiter.Time(r.Int64N(int64(g.span)))
				// No two counters of one word may have equal words: a slot that changes hands twice
				// may be taken for what it was; see Table.insert. So there is one of them.
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
				for s := range strangers {
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
					// A writer that stands still, which hooks let it, keeps its block from being
					// split for so long that others evict.
					evicted++
					continue
				}
				kept := slices.DeleteFunc(rec.ops, func(o porcupine.Operation) bool { return as[op](o.Input).counter >= counters })
				if !porcupine.CheckOperations(check, kept) {
					t.Fatalf("history %d could not have happened one call after another:\n%s", n, describe(kept))
				}
			}
			if evicted > tries/2 && !testing.Short() { // fewer may by chance have them too often
				t.Errorf("%d histories with evictions of %d", evicted, tries)
			}
			if !grown {
				t.Error("no size class has grown")
			}
		})
	}
}

// spreadOut is a table whose counters do not share their blocks, as those of counterID do.
type spreadOut struct{ *limiter.Table }

func (s spreadOut) Decide(now limiter.Time, b *limiter.Batch) {
	for i := range b.Charges {
		h := identity.Key{}.Hasher()
		h.AddWord(b.Charges[i].ID.Hi)
		b.Charges[i].ID = h.Sum()
	}
	s.Table.Decide(now, b)
}
