package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A groupOp is a request whose charges form one group.
type groupOp struct {
	counters []int
	hits     []uint64
	now      limiter.Time
	policy   *limiter.Policy
}

func (o groupOp) String() string {
	return fmt.Sprintf("counters %v hits %v of %d", o.counters, o.hits, o.policy.Limit)
}

// A groupRecorder is a recorder for groups.
type groupRecorder struct {
	recorder

	charged [3]uint64
	wrong   string
}

func (rec *groupRecorder) play(d decider, client int, plan []groupOp, between func()) {
	b := &limiter.Batch{}
	var ops []porcupine.Operation
	var charged [3]uint64
	wrong := ""
	for _, o := range plan {
		b.Reset()
		for i, n := range o.counters {
			b.Charges = append(b.Charges, limiter.Charge{ID: counterID(n), Policy: o.policy, Hits: o.hits[i]})
		}
		between()
		start := rec.clock.Add(1)
		d.Decide(o.now, b)
		ops = append(ops, porcupine.Operation{
			ClientId: client, Input: o, Call: start, Output: b.Denied, Return: rec.clock.Add(1),
		})
		for i, v := range b.Decisions {
			charged[o.counters[i]] += v.Charged
			if want := o.hits[i]; v.Denied != b.Denied || !v.Denied && v.Charged != want || v.Denied && v.Charged != 0 {
				wrong = fmt.Sprintf("%v: Denied = %v, decision %+v", o, b.Denied, v)
			}
		}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.ops = append(rec.ops, ops...)
	for i := range charged {
		rec.charged[i] += charged[i]
	}
	rec.wrong += wrong
}

func (rec *groupRecorder) race(t *turn, r *rand.Rand, d decider, plan [][]groupOp) {
	var bodies []func()
	for c, part := range plan {
		bodies = append(bodies, func() { rec.play(d, c, part, t.step) })
	}
	race(t, r, bodies)
}

// pairs generates groups of the same two counters, in either order, one hit each.
func pairs(r *rand.Rand, policy *limiter.Policy) [][]groupOp {
	plan := make([][]groupOp, clients)
	for c := range plan {
		for range 4 {
			n := r.IntN(2)
			plan[c] = append(plan[c], groupOp{counters: []int{n, 1 - n}, hits: []uint64{1, 1}, now: epoch, policy: policy})
		}
	}
	return plan
}

// pairChecker is the sequential model of pairs: its state is the usage of the two counters. All
// groups charge the same hits, so there are no spurious denials: a group that charged the first
// counter fits the second.
func pairChecker() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(s, in, out any) (bool, any) {
			used := as[int](s)
			over := used >= int(as[groupOp](in).policy.Limit)
			if !over {
				used++
			}
			return as[bool](out) == over, used
		},
	}
}

// mixed generates groups of one to three of three counters with different hits.
func mixed(r *rand.Rand, policy *limiter.Policy) [][]groupOp {
	plan := make([][]groupOp, clients)
	for c := range plan {
		for range 4 {
			o := groupOp{counters: r.Perm(3)[:1+r.IntN(3)], now: epoch, policy: policy}
			for range o.counters {
				hits := uint64(1 + r.IntN(2))
				if policy.UsesLeases() {
					hits = 1 // one permit
				}
				o.hits = append(o.hits, hits)
			}
			plan[c] = append(plan[c], o)
		}
	}
	return plan
}

// violation describes how a history violates the guarantee for groups, or returns "". The
// guarantee: admitted hits never exceed a limit, a denied group leaves no charge, and it is denied
// because of a limit or a concurrent group that was also denied.
func (rec *groupRecorder) violation(d decider, capacity uint64) string {
	if rec.wrong != "" {
		return rec.wrong
	}
	for n, charged := range rec.charged {
		if charged > capacity {
			return fmt.Sprintf("counter %d: %d hits admitted under a limit of %d", n, charged, capacity)
		}
	}
	for _, o := range rec.ops {
		if as[bool](o.Output) && !rec.explained(o, capacity) {
			return fmt.Sprintf("denied without cause: %v", o.Input)
		}
	}
	o := as[groupOp](rec.ops[0].Input)
	for n, want := range rec.charged {
		b := &limiter.Batch{Charges: []limiter.Charge{{ID: counterID(n), Policy: o.policy}}}
		d.Decide(o.now, b)
		if got := b.Decisions[0].Before; got != want {
			return fmt.Sprintf("counter %d has used %d, want the %d that were admitted", n, got, want)
		}
	}
	return ""
}

// explained reports whether a counter may have been over its limit for the group, counting
// everything admitted before the group's end and everything denied concurrently.
func (rec *groupRecorder) explained(denied porcupine.Operation, capacity uint64) bool {
	in := as[groupOp](denied.Input)
	for i, n := range in.counters {
		held := in.hits[i]
		for _, o := range rec.ops {
			other := as[groupOp](o.Input)
			j := slices.Index(other.counters, n)
			concurrent := o.Call < denied.Return && (!as[bool](o.Output) || o.Return > denied.Call && o.Call != denied.Call)
			if j >= 0 && concurrent {
				held += other.hits[j]
			}
		}
		if held > capacity {
			return true
		}
	}
	return false
}

func (rec *groupRecorder) describe() string {
	var s strings.Builder
	for _, o := range rec.ops {
		fmt.Fprintf(&s, "  %3d..%3d client %d: %v -> denied %v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return s.String()
}

// TestHistoriesGroups checks the guarantee for groups with every algorithm.
func TestHistoriesGroups(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			p := *g.policies[0]
			p.Limit, p.Burst, p.Slack, p.MaxWait = 3, 3, 2, 0
			for n := range histories(t) {
				tab, rec := tinyTable(t), &groupRecorder{}
				rec.race(tableTurn(t, r), r, tab, pairs(r, &p))
				if !porcupine.CheckOperations(pairChecker(), rec.ops) {
					t.Fatalf("history %d of pairs is not linearizable:\n%s", n, rec.describe())
				}
				tab, rec = tinyTable(t), &groupRecorder{}
				rec.race(tableTurn(t, r), r, tab, mixed(r, &p))
				if s := rec.violation(tab, 3); s != "" {
					t.Fatalf("history %d: %s\n%s", n, s, rec.describe())
				}
			}
		})
	}
}

// A timedGrant is a number of hits that a counter admitted at some time in [from, to].
type timedGrant struct {
	from, to, end limiter.Time
	hits          int64
}

// excess returns the number of hits by which the grants exceed the policy in any interval.
func excess(p *limiter.Policy, grants []timedGrant) int64 {
	most := int64(math.MinInt64)
	for _, first := range grants {
		for _, last := range grants {
			a, b, hits, bound := first.from, last.to, int64(0), int64(p.Limit)
			switch p.Algorithm {
			case limiter.FixedWindow:
				a, b = first.end-limiter.Time(p.Window), first.end
			case limiter.TokenBucket, limiter.LeakyBucket:
				bound = int64(p.Burst) + int64(b-a)*int64(p.Limit)/int64(p.Window)
			default:
				b = a + limiter.Time(p.Window) - 1
			}
			if b < a {
				continue
			}
			for _, g := range grants {
				if g.from >= a && g.to <= b || p.Algorithm == limiter.FixedWindow && g.end == b {
					hits += g.hits
				}
			}
			most = max(most, hits-bound)
		}
	}
	return most
}

// TestHistoriesGroupsInTime checks the bound of every counter while time passes, also if charges of
// a group drain or leave the window before they are undone.
func TestHistoriesGroupsInTime(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			p := *g.policies[0]
			p.Limit, p.Burst, p.Slack, p.MaxWait = 4, 4, 3, 0
			for n := range histories(t) {
				tab, turns := tinyTable(t), tableTurn(t, r)
				var clock atomic.Int64
				// No client is late by an hour, which would mean that the clock was set back.
				step := min(p.Window/8, time.Hour/(clients*opsAClient))
				start := epoch
				if p.Calendar != nil { // on both sides of a boundary
					start = p.WindowEnd(epoch) - limiter.Time(time.Hour/4)
				}
				clock.Store(int64(start))
				now := func() limiter.Time { return limiter.Time(clock.Load()) }
				var mu sync.Mutex
				var grants [3][]timedGrant
				var bodies []func()
				for range clients {
					r := rand.New(rand.NewPCG(r.Uint64(), 1))
					bodies = append(bodies, func() {
						b := &limiter.Batch{}
						for range opsAClient {
							b.Reset()
							b.Clock = now
							counters := r.Perm(3)[:1+r.IntN(2)]
							for _, c := range counters {
								b.Charges = append(b.Charges, limiter.Charge{ID: counterID(c), Policy: &p, Hits: 1})
							}
							turns.step()
							clock.Add(r.Int64N(int64(step)))
							from := now()
							turns.step()
							tab.Decide(from, b)
							to := now()
							mu.Lock()
							for i, c := range counters {
								if d := b.Decisions[i]; d.Charged > 0 {
									grants[c] = append(grants[c], timedGrant{from, to, from + limiter.Time(d.Reset), 1})
								}
							}
							mu.Unlock()
						}
					})
				}
				race(turns, r, bodies)
				for c := range grants {
					if over := excess(&p, grants[c]); over > 0 {
						t.Fatalf("history %d: counter %d admitted %d hits beyond its bound:\n%v", n, c, over, grants[c])
					}
				}
			}
		})
	}
}
