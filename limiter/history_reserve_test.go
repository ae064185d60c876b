package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A reservation is a call of a client on a budget, and its result.
type reservation struct {
	hits  uint64 // to reserve, or 0
	lease uint64 // granted or returned
	cost  int64  // cost of the returned lease; negative if unknown
}

func (o reservation) String() string {
	if o.hits > 0 {
		return fmt.Sprintf("reserve %d as %d", o.hits, o.lease)
	}
	return fmt.Sprintf("end %d at %d", o.lease, o.cost)
}

const budgetLimit = 10

// budgetChecker is the sequential model: its state is the usage, and the leases with their hits. A
// reservation may be denied below the limit while other clients hold hits that they are about to
// release.
func budgetChecker(release bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return [clients*opsAClient + 1][2]uint64{} }, // the first element is the usage
		Step: func(s, in, out any) (bool, any) {
			all, o, result := as[[clients*opsAClient + 1][2]uint64](s), as[reservation](in), as[uint64](out)
			if o.hits > 0 && o.lease == 0 {
				return true, all
			}
			sum, at, unused := all[0][1], 0, 0
			for i := 1; i < len(all); i++ {
				sum += all[i][1]
				switch all[i][0] {
				case o.lease:
					at = i
				case 0:
					unused = i
				}
			}
			switch {
			case o.hits > 0:
				all[unused] = [2]uint64{o.lease, o.hits}
				return at == 0 && sum+o.hits <= budgetLimit, all
			case at == 0:
				return result == 0, all
			}
			held := all[at][1]
			all[at] = [2]uint64{}
			switch {
			case o.cost >= 0:
				all[0][1] += uint64(o.cost)
			case !release:
				all[0][1] += held
			}
			return result == held, all
		},
	}
}

// A budgetHistory contains the calls of the clients of one budget, and the usage afterwards.
type budgetHistory struct {
	release bool // whether a lease without a cost costs nothing instead of all of its hits
	ops     []porcupine.Operation
	used    uint64
}

// race runs clients that reserve and settle concurrently.
func (h *budgetHistory) race(t *turn, r *rand.Rand, client func() *tableBudget) {
	var clock atomic.Int64
	var mu sync.Mutex
	var leases []uint64 // any client may return them, more than once
	var bodies []func()
	for c := range clients {
		r := rand.New(rand.NewPCG(r.Uint64(), 1))
		bodies = append(bodies, func() {
			b, own := client(), reservation{}
			for range opsAClient {
				o := reservation{cost: -1}
				switch n := r.IntN(8); {
				case own.lease > 0 && n < 5:
					o.lease, o.cost, own = own.lease, r.Int64N(int64(own.hits)+1), reservation{}
				case n < 7:
					mu.Lock()
					if len(leases) > 0 {
						o.lease = leases[max(0, len(leases)-1-r.IntN(3))]
					}
					mu.Unlock()
				}
				if o.lease == 0 {
					o.hits = 1 + r.Uint64N(4)
				}
				t.step()
				op, result := porcupine.Operation{ClientId: c, Call: clock.Add(1)}, uint64(0)
				if o.hits > 0 {
					o.lease = b.reserve(o.hits)
				} else {
					result = b.settleLease(o.lease, o.cost)
				}
				op.Input, op.Output, op.Return = o, result, clock.Add(1)
				mu.Lock()
				h.ops = append(h.ops, op)
				if o.hits > 0 && o.lease > 0 {
					if own.lease == 0 && r.IntN(2) == 0 {
						own = o
					} else {
						leases = append(leases, o.lease)
					}
				}
				mu.Unlock()
			}
		})
	}
	race(t, r, bodies)
	h.used = client().used()
}

// violation describes how a history violates the guarantee for reservations, or returns "". The
// guarantee: an admitted reservation fits together with all used and reserved hits, a lease is
// settled once, and nothing else is used or reserved.
func (h *budgetHistory) violation() string {
	if !porcupine.CheckOperations(budgetChecker(h.release), h.ops) {
		return "is not linearizable"
	}
	held, used := map[uint64]uint64{}, uint64(0)
	for _, op := range h.ops {
		if o := as[reservation](op.Input); o.hits > 0 && o.lease > 0 {
			if held[o.lease] > 0 {
				return "" // 1 of 65,536 leases equals the previous one of its permit, and the check identifies leases by number
			}
			held[o.lease] = o.hits
			used += o.hits
		}
	}
	for _, op := range h.ops {
		o, result := as[reservation](op.Input), as[uint64](op.Output)
		switch {
		case o.hits > 0 && o.lease == 0 && !h.explained(op, held):
			return fmt.Sprintf("denied without cause: %v at %d", o, op.Call)
		case o.hits == 0 && result > 0 && (o.cost >= 0 || h.release):
			used -= result - uint64(max(0, o.cost))
		}
	}
	if h.used != used {
		return fmt.Sprintf("%d hits are used or held, want %d", h.used, used)
	}
	return ""
}

// explained reports whether a denial can be explained by the hits that may have been held or
// charged concurrently, counting both.
func (h *budgetHistory) explained(denied porcupine.Operation, held map[uint64]uint64) bool {
	sum, ended := as[reservation](denied.Input).hits, map[uint64]bool{}
	for _, op := range h.ops {
		if o := as[reservation](op.Input); o.hits == 0 && op.Call < denied.Return {
			settled := as[uint64](op.Output) > 0 // otherwise another call may still be about to settle the lease
			ended[o.lease] = ended[o.lease] || settled && op.Return < denied.Call
			switch {
			case o.cost >= 0:
				sum += uint64(o.cost)
			case !h.release:
				sum += held[o.lease]
			}
		}
	}
	for _, op := range h.ops {
		o := as[reservation](op.Input)
		concurrent := op.Return > denied.Call && op.Call != denied.Call
		if o.hits > 0 && op.Call < denied.Return && (o.lease > 0 && !ended[o.lease] || concurrent) {
			sum += o.hits
		}
	}
	return sum > budgetLimit
}

func (h *budgetHistory) String() string {
	var s strings.Builder
	for _, o := range h.ops {
		fmt.Fprintf(&s, "  %3d..%3d client %d: %v -> %v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return s.String()
}

// A tableBudget is a client of a counter in a table.
type tableBudget struct {
	tab *limiter.Table
	p   *limiter.Policy
	b   limiter.Batch
}

func (t *tableBudget) decide(charges ...limiter.Charge) *limiter.Batch {
	t.b.Reset()
	for i, c := range charges {
		c.ID, c.Policy, c.Group = counterID(0), t.p, int32(i)
		t.b.Charges = append(t.b.Charges, c)
	}
	t.tab.Decide(epoch, &t.b)
	return &t.b
}

// reserve returns the lease of a reservation, or 0 if it is denied.
func (t *tableBudget) reserve(hits uint64) uint64 {
	return t.decide(limiter.Charge{Hits: hits, Reserve: true}).Lease(0)
}

// settleLease returns a lease, with the given cost unless that is negative. Its result is the number of
// hits that the lease held.
func (t *tableBudget) settleLease(lease uint64, cost int64) uint64 {
	charges := []limiter.Charge{{Hits: lease, Refund: true}}
	if cost >= 0 {
		charges = append(charges, limiter.Charge{Hits: uint64(cost)})
	}
	return t.decide(charges...).Decisions[0].Charged
}

// used returns the used and reserved hits while no other client is active.
func (t *tableBudget) used() uint64 {
	return t.decide(limiter.Charge{Reserve: true}).Decisions[0].Before
}

// TestHistoriesReserve checks that reservations of several clients fit the limit at each moment,
// for all algorithms.
func TestHistoriesReserve(t *testing.T) {
	for _, p := range []limiter.Policy{
		{Algorithm: limiter.FixedWindow, Window: time.Minute},
		{Algorithm: limiter.SlidingWindow, Window: time.Minute, SubWindows: 4},
		{Algorithm: limiter.TokenBucket, Window: time.Minute, Burst: budgetLimit},
	} {
		for _, release := range []bool{true, false} {
			t.Run(fmt.Sprintf("algorithm %d release %v", p.Algorithm, release), func(t *testing.T) {
				r := newRand(t)
				p.Limit, p.Reserve = budgetLimit, limiter.NewReserve(20, time.Minute, release)
				p.Prepare()
				must.OK(t, p.Validate())
				for n := range histories(t) {
					tab, h := sizedTable(t, 1<<20), &budgetHistory{release: release}
					tab.UseTestNonces()
					h.race(tableTurn(t, r), r, func() *tableBudget { return &tableBudget{tab: tab, p: &p} })
					if s := h.violation(); s != "" {
						t.Fatalf("history %d: %s:\n%v", n, s, h)
					}
				}
			})
		}
	}
}
