package limiter_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// permitsMutant has cells with leases, and a word with a version and the number of held permits.
type permitsMutant struct {
	permitsMistakes

	turn  *turn
	word  atomic.Uint64
	cells [4]atomic.Uint64
	nonce uint64
}

type permitsMistakes struct {
	stores        bool // acquires without checking that the word is unchanged
	choosesBefore bool // chooses the cell before it loads the word
	releasesTwice bool // releases without checking that the word is unchanged
}

const permitsVersion = 1 << 8

// lease returns the lease, which is stored in a field that the check of mutants ignores.
func (*permitsMutant) lease(b *limiter.Batch) uint64 { return b.Decisions[0].Before }

func (m *permitsMutant) Decide(_ limiter.Time, b *limiter.Batch) {
	b.Decisions, b.Denied = make([]limiter.Decision, 1), false
	c, d := &b.Charges[0], &b.Decisions[0]
	if c.Refund {
		d.Charged = m.release(c.Hits)
		return
	}
	d.Before = m.acquire(uint64(c.Policy.Limit))
	d.Over = d.Before == 0
	b.Denied, d.Denied = d.Over, d.Over
}

func (m *permitsMutant) free() int {
	for i := range m.cells {
		if m.cells[i].Load() == 0 {
			return i
		}
	}
	return 0
}

func (m *permitsMutant) acquire(limit uint64) (lease uint64) {
	for {
		cell := m.free()
		if m.choosesBefore {
			m.turn.step()
		}
		word := m.word.Load()
		if word%permitsVersion >= limit {
			return 0
		}
		if !m.choosesBefore {
			cell = m.free()
		}
		m.turn.step()
		switch next := word + permitsVersion + 1; {
		case m.stores:
			m.word.Store(next)
		case !m.word.CompareAndSwap(word, next):
			continue
		}
		m.nonce++ // no step since the swap, so no other goroutine runs
		lease = limiter.FirstLease + uint64(cell)<<16 + m.nonce
		m.cells[cell].Store(lease)
		return lease
	}
}

func (m *permitsMutant) release(lease uint64) (freed uint64) {
	cell := &m.cells[lease>>16%4]
	for {
		word := m.word.Load()
		if cell.Load() != lease {
			return 0
		}
		m.turn.step()
		switch next := word + permitsVersion - 1; {
		case m.releasesTwice:
			m.word.Add(permitsVersion - 1)
		case !m.word.CompareAndSwap(word, next):
			continue
		}
		cell.Store(0)
		return 1
	}
}

// plan generates acquires and releases of one counter at one instant.
func (permitsMistakes) plan(r *rand.Rand) [][]op {
	p := &limiter.Policy{Algorithm: limiter.Concurrency, Limit: 4, Window: time.Second}
	plan := make([][]op, clients)
	for c := range plan {
		for range opsAClient {
			plan[c] = append(plan[c], op{now: epoch, hits: 1 + r.Uint64N(2), refund: r.IntN(2) == 0, policy: p})
		}
	}
	return plan
}

// survive reports whether a mutant with these mistakes passes a history.
func (m permitsMistakes) survive(r *rand.Rand, plan [][]op) bool {
	t, rec := &turn{}, &recorder{}
	rec.race(t, r, &permitsMutant{permitsMistakes: m, turn: t}, plan)
	return porcupine.CheckOperations(checker(permits, false), rec.ops)
}

func TestPermitsMutants(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mutant permitsMistakes
		right  bool
	}{
		{name: "none", right: true},
		{name: "stores without a swap", mutant: permitsMistakes{stores: true}},
		{name: "chooses a cell before it reads the word", mutant: permitsMistakes{choosesBefore: true}},
		{name: "releases twice", mutant: permitsMistakes{releasesTwice: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			for range 20 {
				if !tt.mutant.survive(r, oneByOne([][][]op{tt.mutant.plan(r)})[0]) {
					t.Fatal("detected without a race")
				}
			}
			for n := range mutantHistories {
				if !tt.mutant.survive(r, tt.mutant.plan(r)) {
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
