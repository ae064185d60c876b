package limiter_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A history contains the calls of several concurrent clients on the same counters, and their
// results. It is correct if it is linearizable under the exact sequential model of the algorithm.

// A decider decides like a [limiter.Table].
type decider interface {
	Decide(now limiter.Time, b *limiter.Batch)
}

// An op is a request with one charge.
type op struct {
	counter int
	now     limiter.Time
	hits    uint64
	refund  bool
	budget  time.Duration
	policy  *limiter.Policy
	lease   uint64 // granted to this op
}

func (o op) String() string {
	verb := "charge"
	if o.refund {
		verb = "refund"
	} else if o.hits == 0 {
		verb = "peek"
	}
	return fmt.Sprintf("counter %d at %v %s %d (limit %d, budget %v, lease %d)",
		o.counter, time.Duration(o.now-epoch), verb, o.hits, o.policy.Limit, o.budget, o.lease)
}

// An answer is the part of a [limiter.Decision] that a single charge can have.
type answer struct {
	over, denied     bool
	before, charged  uint64
	remaining        uint64
	reset, retry     time.Duration
	wait             time.Duration
	resetUnspecified bool // only set by models
}

func (a answer) String() string {
	return fmt.Sprintf("over %v, before %d, charged %d, remaining %d, reset %v, retry %v, wait %v",
		a.over, a.before, a.charged, a.remaining, a.reset, a.retry, a.wait)
}

// epoch is the start of histories: a boundary of all windows in use.
const epoch = limiter.Time(1_700_000_040 * time.Second)

// counterID returns the ID of counter n. All counters share one pair of blocks.
func counterID(n int) identity.ID {
	return identity.ID{Hi: uint64(n+1) << 40, Lo: 0x1234_5678_9abc_def0}
}

// call decides o with d.
func call(d decider, b *limiter.Batch, o op) answer {
	b.Reset()
	b.Budget = o.budget
	b.Charges = append(b.Charges, limiter.Charge{
		ID: counterID(o.counter), Policy: o.policy, Hits: o.hits, Refund: o.refund,
	})
	d.Decide(o.now, b)
	v := b.Decisions[0]
	return answer{
		over: v.Over, denied: v.Denied, before: v.Before, charged: v.Charged, remaining: v.Remaining,
		reset: v.Reset, retry: v.RetryAfter, wait: v.Wait,
	}
}

// A recorder records the operations of one history. Time is the order of calls and returns.
type recorder struct {
	clock  atomic.Int64
	mu     sync.Mutex
	ops    []porcupine.Operation
	leases map[int][]uint64 // granted to any client, by counter
}

func (rec *recorder) recordLease(counter int, lease uint64) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.leases == nil {
		rec.leases = map[int][]uint64{}
	}
	rec.leases[counter] = append(rec.leases[counter], lease)
}

// recentLease returns a recent lease of a counter. It may have been granted to another client, and
// may have been returned.
func (rec *recorder) recentLease(counter int, ago uint64) uint64 {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	all := rec.leases[counter]
	if n := len(all); n > 0 {
		return all[n-1-int(ago)%n]
	}
	return limiter.FirstLease
}

// play runs one client's part of a plan.
func (rec *recorder) play(d decider, client int, plan []op, between func()) {
	b := &limiter.Batch{}
	ops := make([]porcupine.Operation, 0, len(plan))
	for _, o := range plan {
		between()
		if o.refund && o.policy.UsesLeases() {
			o.hits = rec.recentLease(o.counter, o.hits)
		}
		start := rec.clock.Add(1)
		a := call(d, b, o)
		end := rec.clock.Add(1)
		if o.lease = b.Lease(0); o.lease > 0 {
			rec.recordLease(o.counter, o.lease)
		}
		ops = append(ops, porcupine.Operation{
			ClientId: client, Input: o, Call: start, Output: a, Return: end,
		})
	}
	rec.mu.Lock()
	rec.ops = append(rec.ops, ops...)
	rec.mu.Unlock()
}

// parallel runs the bodies concurrently, each in a goroutine.
func parallel(bodies []func()) {
	var wg sync.WaitGroup
	var ready atomic.Int32
	for _, body := range bodies {
		wg.Go(func() {
			for ready.Add(1); int(ready.Load()) < len(bodies); {
				runtime.Gosched()
			}
			body()
		})
	}
	wg.Wait()
}

// A turn runs goroutines one at a time in an order drawn from a seed, so that races are
// reproducible: at each step another goroutine may continue.
type turn struct{ yield func() }

// step is a point at which another goroutine may run.
func (t *turn) step() {
	if t != nil && t.yield != nil {
		t.yield()
	}
}

// run runs the bodies. Some are delayed for a long time, like goroutines whose thread was
// descheduled.
func (t *turn) run(r *rand.Rand, bodies []func()) {
	type routine struct {
		next  func() (struct{}, bool)
		yield func()
	}
	var live []*routine
	for _, body := range bodies {
		c := &routine{}
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			c.yield = func() { yield(struct{}{}) }
			t.yield = c.yield
			body()
		})
		defer stop()
		c.next = next
		live = append(live, c)
	}
	for len(live) > 0 {
		i := r.IntN(len(live))
		for range 1 << r.IntN(6) {
			t.yield = live[i].yield
			if _, ok := live[i].next(); !ok {
				live = slices.Delete(live, i, i+1)
				break
			}
		}
	}
	t.yield = nil
}

// race runs the bodies in parallel, or in turns if the code under test has steps.
func race(t *turn, r *rand.Rand, bodies []func()) {
	if t == nil {
		parallel(bodies)
		return
	}
	t.run(r, bodies)
}

// race runs all clients of a plan concurrently.
func (rec *recorder) race(t *turn, r *rand.Rand, d decider, plan [][]op) {
	var bodies []func()
	for c, part := range plan {
		pauses := r.Uint64()
		bodies = append(bodies, func() {
			rec.play(d, c, part, func() {
				t.step()
				if pauses >>= 1; t == nil && pauses&1 == 1 {
					runtime.Gosched()
				}
			})
		})
	}
	race(t, r, bodies)
}

// same reports whether the answer to o equals the model's.
func (a answer) same(model answer, o op, exact bool) bool {
	if !exact {
		return a.over == model.over && (!o.refund || a.charged == model.charged)
	}
	if model.resetUnspecified {
		a.reset, model.resetUnspecified = model.reset, false
	}
	model.denied = model.over
	return a == model
}

// as converts a value that porcupine passes.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%T in a history", v))
	}
	return t
}

// checker returns the porcupine model of a model. Counters are independent and checked separately.
// An inexact check compares verdicts only.
func checker(step model, exact bool) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[int][]porcupine.Operation{}
			for _, o := range history {
				n := as[op](o.Input).counter
				parts[n] = append(parts[n], o)
			}
			var all [][]porcupine.Operation
			for _, p := range parts {
				all = append(all, p)
			}
			return all
		},
		Init: func() any { return []int64(nil) },
		Step: func(s, in, out any) (bool, any) {
			next, want := step(as[[]int64](s), as[op](in))
			return as[answer](out).same(want, as[op](in), exact), next
		},
		Equal: func(a, b any) bool { return slices.Equal(as[[]int64](a), as[[]int64](b)) },
	}
}

// describe formats a history in the order of its calls.
func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var s strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&s, "  %3d..%3d client %d: %v\n             -> %v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return s.String()
}

// newRand returns random numbers seeded by SLUICE_SEED, or by a seed that it logs.
func newRand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must.OK(tb, err)
		seed = n
	}
	tb.Logf("SLUICE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

const (
	clients    = 4
	opsAClient = 12
)

// plan generates the calls of each client on two counters. Times generally increase, but clients
// are early and late.
func (g game) plan(r *rand.Rand) [][]op {
	plan := make([][]op, clients)
	policy := g.policies[r.IntN(len(g.policies))]
	counters := 1 + r.IntN(2)
	start := epoch + limiter.Time(r.Int64N(int64(g.span)))
	for c := range plan {
		for i := range opsAClient {
			if g.mixed {
				policy = g.policies[r.IntN(len(g.policies))]
			}
			o := op{
				counter: r.IntN(counters),
				now:     start + limiter.Time(g.span)*limiter.Time(i)/opsAClient,
				hits:    1,
				policy:  policy,
			}
			switch r.IntN(4) {
			case 0: // any time, to the nanosecond
				o.now += limiter.Time(r.Int64N(int64(g.span/4))) - limiter.Time(g.span/8)
			case 1: // exactly at a boundary
				o.now -= o.now % limiter.Time(g.tick)
			}
			switch r.IntN(8) {
			case 0:
				o.hits = 0
			case 1:
				o.hits = uint64(r.IntN(2*int(policy.Limit)) + 1)
			case 2, 3:
				o.hits = 2
			case 4:
				o.refund = true
				o.hits = uint64(r.IntN(4))
			}
			if g.budgets != nil {
				o.budget = g.budgets[r.IntN(len(g.budgets))]
			}
			plan[c] = append(plan[c], o)
		}
	}
	return plan
}

// histories returns the number of histories for each algorithm.
func histories(tb testing.TB) int {
	tb.Helper()
	return effort.Times(tb, 32)
}

// TestHistories checks that concurrent calls are linearizable with every algorithm.
func TestHistories(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(g.model, true)
			for n := range histories(t) {
				tab, err := limiter.New(limiter.Options{Bytes: 1 << 20})
				must.OK(t, err)
				rec := &recorder{}
				rec.race(tableTurn(t, r), r, tab, g.plan(r))
				if !porcupine.CheckOperations(check, rec.ops) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
				}
			}
		})
	}
}
