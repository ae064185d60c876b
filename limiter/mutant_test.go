package limiter_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Mutants are limiters with typical mistakes of lock-free code. They show that the histories detect
// such mistakes: each mutant is correct as long as calls are sequential, and must be detected when
// they are concurrent. They run in turns drawn from fixed seeds, so detection does not depend on
// luck.

// mutantHistories is the maximum number of histories until a mutant is detected.
const mutantHistories = 500

// A mutant decides single hits one by one. At its steps another goroutine may run.
type mutant func(now limiter.Time, n int, p *limiter.Policy) (over bool)

func (m mutant) Decide(now limiter.Time, b *limiter.Batch) {
	b.Decisions, b.Denied = make([]limiter.Decision, len(b.Charges)), false
	for i, c := range b.Charges {
		over := m(now, int(c.ID.Hi>>40)-1, c.Policy)
		b.Decisions[i] = limiter.Decision{Over: over, Denied: over}
		b.Denied = b.Denied || over
	}
}

func mutants() []mutantTest {
	const second = time.Second
	return []mutantTest{
		{
			name: "check then act", model: fixedWindow, make: checkThenAct,
			policy: limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 4, Window: second},
		},
		{
			name: "window of two words", model: fixedWindow, make: twoWordWindow,
			policy: limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 4, Window: second},
		},
		{
			name: "ring with a word for each sub-window", model: slidingWindow, make: naiveRing,
			policy: limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 4, Window: second, SubWindows: 4},
		},
		{
			name: "grant that does not change the word", model: bucket, make: sameWordBucket,
			policy: limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4, Window: second, Burst: 2},
		},
		{
			name: "table that does not check the tag again", model: fixedWindow, make: carelessTable, counters: 8,
			policy: limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2, Window: second},
		},
		{
			name: "map that deletes counters in use", model: fixedWindow, make: deletingMap, counters: 8,
			policy: limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2, Window: second},
		},
	}
}

type mutantTest struct {
	name     string
	model    model
	policy   limiter.Policy
	make     func(t *turn) mutant
	counters int // if above 0, phases of one instant each with this many counters
}

// plan generates phases.
func (m *mutantTest) plan(r *rand.Rand) [][][]op {
	if m.counters > 0 {
		g := game{policies: []*limiter.Policy{&m.policy}}
		return g.phases(r, m.counters, 3, 3)
	}
	plan := make([][]op, clients)
	for c := range plan {
		for i := range opsAClient {
			now := epoch + limiter.Time(i)*limiter.Time(m.policy.Window)/4
			plan[c] = append(plan[c], op{now: now, hits: 1, policy: &m.policy})
		}
	}
	return [][][]op{plan}
}

// oneByOne turns a plan into a plan of a single client.
func oneByOne(phases [][][]op) [][][]op {
	var all []op
	for _, plan := range phases {
		all = append(all, slices.Concat(plan...)...)
	}
	slices.SortStableFunc(all, func(a, b op) int { return cmp.Compare(a.now, b.now) })
	return [][][]op{{all}}
}

// survives reports whether the mutant passes a history, and returns the history.
func (m *mutantTest) survives(r *rand.Rand, phases [][][]op) (bool, *recorder) {
	t, rec := &turn{}, &recorder{}
	d := m.make(t)
	for _, plan := range phases {
		rec.race(t, r, d, plan)
	}
	return porcupine.CheckOperations(checker(m.model, false), rec.ops), rec
}

func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			for range 20 {
				if ok, rec := m.survives(r, oneByOne(m.plan(r))); !ok {
					t.Fatalf("detected without a race:\n%s", describe(rec.ops))
				}
			}
			for n := range mutantHistories {
				if ok, _ := m.survives(r, m.plan(r)); !ok {
					t.Logf("detected in history %d", n)
					return
				}
			}
			t.Errorf("not detected in %d histories", mutantHistories)
		})
	}
}

func index(now limiter.Time, unit time.Duration) uint64 { return uint64(now) / uint64(unit) }

// checkThenAct reads, decides and then adds.
func checkThenAct(t *turn) mutant {
	var window, count atomic.Uint64
	return func(now limiter.Time, _ int, p *limiter.Policy) bool {
		if w := index(now, p.Window); w > window.Load() {
			window.Store(w) // together with the next line: no step between them
			count.Store(0)
		}
		if count.Load() >= uint64(p.Limit) {
			return true
		}
		t.step()
		count.Add(1)
		return false
	}
}

// twoWordWindow counts correctly within a window, but starts a new window in two steps.
func twoWordWindow(t *turn) mutant {
	var window, count atomic.Uint64
	return func(now limiter.Time, _ int, p *limiter.Policy) bool {
		for w := window.Load(); index(now, p.Window) > w; w = window.Load() {
			t.step()
			if window.CompareAndSwap(w, index(now, p.Window)) {
				t.step()
				count.Store(0)
			}
		}
		for {
			c := count.Load()
			if c >= uint64(p.Limit) {
				return true
			}
			t.step()
			if count.CompareAndSwap(c, c+1) {
				return false
			}
		}
	}
}

// naiveRing admits by the word of the current sub-window plus the sum of the others, which may grow
// meanwhile.
func naiveRing(t *turn) mutant {
	var slots [5]atomic.Uint64 // number of the sub-window, and an 8-bit count
	return func(now limiter.Time, _ int, p *limiter.Policy) bool {
		for {
			epoch, sum := index(now, p.Window/time.Duration(p.SubWindows)), uint64(0)
			for i := range slots {
				epoch = max(epoch, slots[i].Load()>>8)
			}
			for i := range slots {
				if s := slots[i].Load(); s>>8 < epoch && s>>8+uint64(p.SubWindows) >= epoch {
					sum += s & 255
				}
			}
			own := &slots[epoch%uint64(len(slots))]
			old := own.Load()
			next := max(old, epoch<<8)
			if sum+next&255 >= uint64(p.Limit) {
				return true
			}
			t.step()
			if own.CompareAndSwap(old, next+1) {
				return false
			}
		}
	}
}

// sameWordBucket stores its tokens and the time of the last refill separately. When the refill
// equals the grant, the swap of the tokens changes nothing, and the swap of another caller succeeds
// as well.
func sameWordBucket(t *turn) mutant {
	var tokens, last atomic.Int64 // tokens counts missing tokens
	return func(now limiter.Time, _ int, p *limiter.Policy) bool {
		interval := int64(p.Window) / int64(p.Limit)
		for {
			missing, since := tokens.Load(), last.Load()
			refill := max(0, int64(now)-since) / interval
			left := max(0, missing-refill)
			if left >= int64(p.Burst) {
				return true
			}
			t.step()
			if tokens.CompareAndSwap(missing, left+1) {
				if refill > 0 {
					last.Store(int64(now))
				}
				return false
			}
		}
	}
}
