package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A leaseModel is a simple model of the counters of all tenants: each has a count that never
// expires and a list of leases.
type leaseModel map[identity.ID]*leasedCounter

type leasedCounter struct {
	counter oracle
	holds   []modelHold
}

// A modelHold is the hits that a request holds until it ends, or until the time end.
type modelHold struct {
	lease, hits uint64
	end         Time
}

func (m leaseModel) counterOf(c *Charge) *leasedCounter {
	if m[c.ID] == nil {
		m[c.ID] = &leasedCounter{counter: newOracle(c.Policy.Algorithm)}
	}
	return m[c.ID]
}

// heldHits returns the held hits at the time now, and the number of requests.
func (l *leasedCounter) heldHits(now Time) (hits uint64, requests int) {
	l.holds = slices.DeleteFunc(l.holds, func(h modelHold) bool { return h.end <= now })
	for _, h := range l.holds {
		hits += h.hits
	}
	return hits, len(l.holds)
}

// charge charges the counter. With force it ignores the limit.
func (l *leasedCounter) charge(now Time, c Charge, hits uint64, force bool) Decision {
	p := *c.Policy
	p.Reserve, p.CountRefused = nil, force
	return l.counter.decide(now, Charge{ID: c.ID, Policy: &p, Hits: hits}, 0)
}

// start decides a charge of a new request, without effects. over means that its hits exceed the
// limit, full that the maximum number of requests already hold hits.
func (l *leasedCounter) start(now Time, c Charge) (over, full bool, before uint64) {
	held, requests := l.heldHits(now)
	if c.Policy.Reserve == nil {
		return requests >= int(c.Policy.Limit), false, held
	}
	peek := leasedCounter{counter: copyOf(l.counter)}
	d := peek.charge(now, c, held+c.Hits, false)
	return d.Over, c.Hits > 0 && requests >= int(c.Policy.Reserve.MaxReservations()), d.Before + held
}

// endLease ends a lease. It returns the held hits, or 0 if the lease is no longer valid. A negative
// cost is unknown.
func (l *leasedCounter) endLease(now Time, c Charge, cost int64) (held uint64) {
	l.heldHits(now)
	at := slices.IndexFunc(l.holds, func(h modelHold) bool { return h.lease == c.Hits })
	if at < 0 {
		if cost >= 0 {
			l.charge(now, c, uint64(cost), false)
		}
		return 0
	}
	held = l.holds[at].hits
	l.holds = slices.Delete(l.holds, at, at+1)
	switch r := c.Policy.Reserve; {
	case r != nil && cost >= 0:
		l.charge(now, c, uint64(cost), true)
	case r != nil && !r.ReleasesWithoutCost():
		l.charge(now, c, held, true)
	}
	return held
}

// modelBudgets returns the limits of one request: those of a team, which several tenants share, and
// those of a tenant. Each limit has variants on the same counter, like overrides and edited rules.
func modelBudgets() [][]*Policy {
	budgets := [][]Policy{
		{{Algorithm: TokenBucket, Limit: 1_000_000, Burst: 1_000_000, Window: 1000 * time.Second}},
		{{Algorithm: TokenBucket, Limit: 20, Burst: 20, Window: 10 * time.Second}, {Algorithm: TokenBucket, Limit: 40, Burst: 40, Window: 10 * time.Second}},
		{{Algorithm: FixedWindow, Limit: 30, Window: 7 * time.Second}, {Algorithm: FixedWindow, Limit: 10, Window: 7 * time.Second}},
		{{Algorithm: SlidingWindow, Limit: 25, Window: 5 * time.Second, SubWindows: 5}},
		{{Algorithm: Concurrency, Limit: 3, Window: 8 * time.Second}, {Algorithm: Concurrency, Limit: 9, Window: 3 * time.Second}},
	}
	all := make([][]*Policy, len(budgets))
	for i, variants := range budgets {
		for v := range variants {
			p := &variants[v]
			if p.Algorithm != Concurrency {
				p.Reserve = NewReserve([]uint32{200, 4, 2, 7}[i]<<v, time.Duration(2+3*v+i)*time.Second, i%2 == 0)
			}
			if v == 0 {
				p.Prepare()
			}
			all[i] = append(all[i], p)
		}
	}
	return all
}

// A modelRequest is a running request: each charge returns one of its leases.
type modelRequest []Charge

// A leaseTrial plays requests to a table, with one reused batch, and to a model.
type leaseTrial struct {
	r       *rand.Rand
	table   *Table
	model   leaseModel
	b       Batch
	now     Time
	budgets [][]*Policy
	running []modelRequest

	started, denied, settled int
}

// begin starts a request of a tenant under some budgets.
func (t *leaseTrial) begin() error {
	t.b.Reset()
	tenant, group := t.r.IntN(30), int32(0)
	for i := range t.budgets {
		if t.r.IntN(3) == 0 {
			continue
		}
		id := 1000*(i+1) + tenant
		if i == 0 {
			id = 1000 + tenant%2
		}
		c := Charge{ID: counterID(id), Policy: t.budgets[i][t.r.IntN(len(t.budgets[i]))], Hits: 1, Group: group}
		if c.Policy.Reserve != nil {
			c.Reserve, c.Hits = true, t.r.Uint64N(9)
		}
		t.b.Charges = append(t.b.Charges, c)
		group += t.r.Int32N(2)
	}
	if len(t.b.Charges) == 0 {
		return nil
	}
	t.table.Decide(t.now, &t.b)
	denied := false
	for i, c := range t.b.Charges {
		d := &t.b.Decisions[i]
		over, full, before := t.model.counterOf(&c).start(t.now, c)
		denied = denied || over || full
		// In a group that is denied anyway, the number of requests is not checked.
		if d.Over != (over || full) && (!full || !d.Denied) || d.Before != before {
			return fmt.Errorf("a start of %d hits: over %v with %d before, want %v or %v with %d", c.Hits, d.Over, d.Before, over, full, before)
		}
	}
	if t.b.Denied != denied {
		return fmt.Errorf("denied is %v, want %v", t.b.Denied, denied)
	}
	var request modelRequest
	for i, c := range t.b.Charges {
		lease, l := t.b.Lease(i), t.model.counterOf(&c)
		if (lease > 0) != (!denied && c.Hits > 0) || slices.ContainsFunc(l.holds, func(h modelHold) bool { return h.lease == lease }) {
			return fmt.Errorf("denied is %v and the lease of %d hits is %d; the model holds %v", denied, c.Hits, lease, l.holds)
		}
		if lease > 0 {
			life := c.Policy.Window
			if c.Policy.Reserve != nil {
				life = c.Policy.Reserve.Life()
			}
			l.holds = append(l.holds, modelHold{lease, c.Hits, t.now + Time(life)})
			c.Hits, c.Reserve, c.Refund = lease, false, true
			request = append(request, c)
		}
	}
	if t.started++; denied {
		t.denied++
	}
	t.running = append(t.running, request)
	return nil
}

// finish ends a request, or returns leases of one that has already ended.
func (t *leaseTrial) finish() error {
	if len(t.running) == 0 {
		return nil
	}
	at := t.r.IntN(len(t.running))
	request := t.running[at]
	if t.r.IntN(4) > 0 {
		t.running = slices.Delete(t.running, at, at+1)
	}
	t.b.Reset()
	var costs []int64
	var leases []int
	for _, c := range request {
		cost := int64(-1)
		if c.Policy.Reserve != nil && t.r.IntN(3) > 0 {
			cost = t.r.Int64N(14)
		}
		c.Group = int32(2 * len(costs))
		costs, leases = append(costs, cost), append(leases, len(t.b.Charges))
		t.b.Charges = append(t.b.Charges, c)
		if cost >= 0 {
			c.Hits, c.Refund, c.Group = uint64(cost), false, c.Group+1
			t.b.Charges = append(t.b.Charges, c)
		}
	}
	if len(t.b.Charges) == 0 {
		return nil
	}
	t.table.Decide(t.now, &t.b)
	for i, at := range leases {
		c := t.b.Charges[at]
		held := t.model.counterOf(&c).endLease(t.now, c, costs[i])
		if got := t.b.Decisions[at].Charged; got != held {
			return fmt.Errorf("a returned lease held %d, want %d", got, held)
		}
		if held > 0 {
			t.settled++
		}
	}
	return nil
}

// TestLeasesOfManyTenants plays requests that start, end at some cost, end twice or never end,
// under several budgets of many tenants, to a table and to a model.
func TestLeasesOfManyTenants(t *testing.T) {
	for seed := range uint64(50) {
		trial := leaseTrial{
			r: rand.New(rand.NewPCG(seed, 39)), table: newTable(t, 4<<20), model: leaseModel{}, now: 1_700_000_000 * sec,
			budgets: modelBudgets(),
		}
		for step := range 800 {
			trial.now += Time(trial.r.IntN(300) * int(time.Millisecond))
			does := trial.begin
			if trial.r.IntN(5) < 2 {
				does = trial.finish
			}
			if err := does(); err != nil {
				t.Fatalf("seed %d, step %d at %d: %v\n%s", seed, step, trial.now, err, describe(trial.b.Charges))
			}
		}
		if s := trial.table.Stats(); s.Evicted > 0 {
			t.Fatalf("seed %d: %d counters were evicted", seed, s.Evicted)
		}
		if trial.started < 200 || trial.denied < 20 || trial.settled < 100 {
			t.Errorf("weak test with seed %d: %d requests started, %d were denied, %d leases settled", seed, trial.started, trial.denied, trial.settled)
		}
	}
}
