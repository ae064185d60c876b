package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Histories with penalties take place at one instant: if clients were early and late, a client
// could be denied in a window that is over when its penalty starts, which no order of complete
// calls explains. They have no refunds: a request that read the penalty before it started may use
// hits refunded afterwards.

var historySteps = []time.Duration{2 * time.Second, 3 * time.Second}

// penalised adds penalties to a model. Its state has the level and the end of the penalty before
// the counter's.
func penalised(counter model) model {
	return func(s []int64, o op) ([]int64, answer) {
		level, end, inner := int64(0), int64(0), []int64(nil)
		if s != nil {
			level, end = s[0], s[1]
			if len(s) > 2 {
				inner = s[2:]
			}
		}
		retry := func() time.Duration {
			if o.hits > uint64(o.policy.Limit) {
				return limiter.Never
			}
			return time.Duration(end - int64(o.now))
		}
		if level > 0 && end > int64(o.now) {
			return s, answer{over: true, retry: retry()}
		}
		if end+int64(o.policy.Window) <= int64(o.now) {
			level = 0
		}
		next, a := counter(inner, o)
		if a.over && o.hits > 0 {
			level = min(level+1, int64(len(historySteps)))
			end = int64(o.now) + int64(historySteps[level-1])
			a.retry = retry()
		}
		return append([]int64{level, end}, next...), a
	}
}

// penaltyChecker compares verdicts and their durations: steps are longer than any window.
func penaltyChecker(counter model) porcupine.Model {
	m := checker(penalised(counter), false)
	m.Step = func(s, in, out any) (bool, any) {
		next, want := penalised(counter)(as[[]int64](s), as[op](in))
		got := as[answer](out)
		return got.over == want.over && (!got.over || got.retry == want.retry), next
	}
	return m
}

// penaltyPlan generates earlier calls and the calls of each client.
func penaltyPlan(r *rand.Rand, p *limiter.Policy) (before []op, plan [][]op) {
	draw := func(at time.Duration) op {
		return op{now: epoch + limiter.Time(at), hits: []uint64{0, 1, 1, 2, 3, uint64(p.Limit) + 1}[r.IntN(6)], policy: p}
	}
	at := time.Duration(0)
	for range r.IntN(6) {
		at += []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second}[r.IntN(4)]
		before = append(before, draw(at))
	}
	at += []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}[r.IntN(4)]
	for range clients {
		var part []op
		for range 3 {
			part = append(part, draw(at))
		}
		plan = append(plan, part)
	}
	return before, plan
}

// racePenalties plays a plan, and reports whether the history is linearizable.
func racePenalties(t *turn, r *rand.Rand, d decider, p *limiter.Policy, m porcupine.Model) (*recorder, bool) {
	rec := &recorder{}
	before, plan := penaltyPlan(r, p)
	rec.play(d, 0, before, func() {})
	rec.race(t, r, d, plan)
	return rec, porcupine.CheckOperations(m, rec.ops)
}

func TestHistoriesPenalty(t *testing.T) {
	for _, g := range games() {
		for _, p := range g.policies[:2] { // prepared and unprepared
			if p.Penalty = limiter.NewPenalty(historySteps...); p.Window != time.Second || p.Validate() != nil || p.CountRefused || g.mixed {
				continue // denied hits that count do so before the penalty starts
			}
			t.Run(fmt.Sprintf("%s of %d", g.name, p.Limit), func(t *testing.T) {
				r, m := newRand(t), penaltyChecker(g.model)
				for n := range histories(t) {
					if rec, ok := racePenalties(tableTurn(t, r), r, sizedTable(t, 64<<10), p, m); !ok {
						t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
					}
				}
			})
		}
	}
}
