package limiter_test

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// groupMutant charges the counters of a group one after another and rolls back if one is over its
// limit.
type groupMutant struct {
	mistakes

	turn *turn
	used [3]atomic.Uint64
}

type mistakes struct {
	unsorted       bool // charges in the order of the request
	restores       bool // restores the state it read before, and so drops hits of others
	keeps          bool // does not roll back
	doesNotRecheck bool // checks all counters, then adds without checking again
}

func (m *groupMutant) Decide(_ limiter.Time, b *limiter.Batch) {
	n := len(b.Charges)
	b.Decisions, b.Denied = make([]limiter.Decision, n), false
	order, seen := make([]int, n), make([]uint64, n)
	counter := func(i int) int { return int(b.Charges[i].ID.Hi>>40) - 1 }
	for i := range order {
		order[i] = i
		b.Decisions[i].Before = m.used[counter(i)].Load()
	}
	if !m.unsorted {
		slices.SortFunc(order, func(i, j int) int { return counter(i) - counter(j) })
	}
	if m.doesNotRecheck {
		for i, c := range b.Charges {
			b.Denied = b.Denied || c.Hits > 0 && m.used[counter(i)].Load()+c.Hits > uint64(c.Policy.Limit)
		}
		m.turn.step()
		for i, c := range b.Charges {
			b.Decisions[i].Denied = b.Denied
			if !b.Denied {
				m.used[counter(i)].Add(c.Hits)
				b.Decisions[i].Charged = c.Hits
			}
		}
		return
	}
	for k, i := range order {
		c, word := &b.Charges[i], &m.used[counter(i)]
		for {
			m.turn.step()
			seen[i] = word.Load()
			if seen[i]+c.Hits > uint64(c.Policy.Limit) && c.Hits > 0 {
				m.rollBack(b, order[:k], seen)
				return
			}
			m.turn.step()
			if word.CompareAndSwap(seen[i], seen[i]+c.Hits) {
				break
			}
		}
	}
	for i := range b.Decisions {
		b.Decisions[i].Charged = b.Charges[i].Hits
	}
}

func (m *groupMutant) rollBack(b *limiter.Batch, reserved []int, seen []uint64) {
	b.Denied = true
	for i := range b.Decisions {
		b.Decisions[i].Denied = true
	}
	for _, i := range reserved {
		m.turn.step()
		word := &m.used[int(b.Charges[i].ID.Hi>>40)-1]
		switch {
		case m.restores:
			word.Store(seen[i])
		case !m.keeps:
			word.Add(-b.Charges[i].Hits)
		}
	}
}

// survive reports whether a mutant with these mistakes passes one history of pairs and one of mixed
// groups.
func (m mistakes) survive(r *rand.Rand) bool {
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 3}
	t := &turn{}
	try := func(plan [][]groupOp) (*groupRecorder, *groupMutant) {
		d := &groupMutant{mistakes: m, turn: t}
		rec := &groupRecorder{}
		rec.race(t, r, d, plan)
		return rec, d
	}
	rec, _ := try(pairs(r, p))
	if !porcupine.CheckOperations(pairChecker(), rec.ops) {
		return false
	}
	rec, d := try(mixed(r, p))
	return rec.violation(d, 3) == ""
}

func TestGroupMutants(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mutant mistakes
		right  bool
	}{
		{name: "none", right: true},
		{name: "reserves in the order of the request", mutant: mistakes{unsorted: true}},
		{name: "restores the state it read", mutant: mistakes{restores: true}},
		{name: "does not roll back", mutant: mistakes{keeps: true}},
		{name: "check then act", mutant: mistakes{doesNotRecheck: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			for n := range mutantHistories {
				if !tt.mutant.survive(r) {
					if tt.right {
						t.Errorf("history %d of the correct version is rejected", n)
					}
					return
				}
			}
			if !tt.right {
				t.Errorf("not detected in %d histories", mutantHistories)
			}
		})
	}
}

// TestFixedMutants checks that the mutants of tables without their mistakes are not detected.
func TestFixedMutants(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mended func(*turn) mutant
	}{
		{"table that does not check the tag again", carefulTable},
		{"map that deletes counters in use", keepingMap},
	} {
		all := mutants()
		m := all[slices.IndexFunc(all, func(m mutantTest) bool { return m.name == tt.name })]
		m.make = tt.mended
		r := rand.New(rand.NewPCG(1, 1))
		for n := range mutantHistories {
			if ok, rec := m.survives(r, m.plan(r)); !ok {
				t.Fatalf("%s: detected in history %d without its mistake:\n%s", tt.name, n, describe(rec.ops))
			}
		}
	}
}
