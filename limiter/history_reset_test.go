package limiter_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// resetHits marks an op that resets its counter.
const resetHits = math.MaxUint64

// A resetter is a table that supports resets in histories.
type resetter struct{ *limiter.Table }

func (r resetter) Decide(now limiter.Time, b *limiter.Batch) {
	if c := b.Charges[0]; c.Hits == resetHits {
		b.Decisions = append(b.Decisions[:0], limiter.Decision{Before: r.Reset(now, b, 0)})
		return
	}
	r.Table.Decide(now, b)
}

// withReset adds resets to a model. A reset returns what a peek returns as usage.
func withReset(m model) model {
	return func(s []int64, o op) ([]int64, answer) {
		if o.hits != resetHits {
			return m(s, o)
		}
		o.hits, o.refund = 0, false
		_, seen := m(s, o)
		a := answer{before: seen.before}
		now, p := int64(o.now), o.policy
		if seen.before == 0 {
			return s, a
		}
		switch p.Algorithm {
		case limiter.FixedWindow:
			return []int64{s[0], 0}, a // the window stays
		case limiter.SlidingWindow:
			sub := p.Window / time.Duration(p.SubWindows)
			return []int64{max(floor(o.now, sub), s[len(s)-2]), 0}, a
		case limiter.SlidingLog:
			return []int64{max(now, s[0])}, a // late hits count at the time of the reset
		case limiter.Concurrency:
			return nil, a
		default:
			return []int64{now}, a
		}
	}
}

// addResets replaces some ops by resets.
func addResets(r *rand.Rand, plan [][]op) [][]op {
	for _, part := range plan {
		for i := range part {
			if r.IntN(6) == 0 {
				part[i].hits, part[i].refund = resetHits, false
			}
		}
	}
	return plan
}

// TestHistoriesReset checks that resets are atomic among concurrent calls with any times.
func TestHistoriesReset(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(withReset(g.model), true)
			for n := range histories(t) {
				tab, err := limiter.New(limiter.Options{Bytes: 1 << 20})
				must.OK(t, err)
				rec := &recorder{}
				rec.race(tableTurn(t, r), r, resetter{tab}, addResets(r, g.plan(r)))
				if !porcupine.CheckOperations(check, rec.ops) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
				}
			}
		})
	}
}

// TestHistoriesResetReclaim is TestHistoriesReset while slots change their owner. There is one
// reset per phase: with several at one instant a slot could change its owner twice and get the same
// word again while a client is suspended before its swap; see Table.insert.
func TestHistoriesResetReclaim(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(withReset(g.model), true)
			for n := range histories(t) / 4 {
				tab, rec := tinyTable(t), &recorder{}
				for _, phase := range g.phases(r, 40, 12, opsAClient) {
					phase[r.IntN(clients)][r.IntN(opsAClient)].hits = resetHits
					rec.race(tableTurn(t, r), r, resetter{tab}, phase)
				}
				if !porcupine.CheckOperations(check, rec.ops) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
				}
				if s := tab.Stats(); s.Evicted > 0 || s.Reclaimed == 0 {
					t.Fatalf("%+v, want none evicted and some reclaimed", s)
				}
			}
		})
	}
}
